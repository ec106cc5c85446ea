// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// `advance_scale_` for devices without a kernel of ours.

#include <ATen/core/Tensor.h>

#include "ampscaler/export.h"

namespace ampscaler::ops {

/// The rule as a composition of torch's operators: CUDA in a CPU-only build, and devices that we know
/// nothing of. Exported for its test, which compares it with the kernel.
AMPSCALER_API void advance_scale_by_torch(const at::Tensor& scale, const at::Tensor& growth_tracker,
                                          const at::Tensor& found_inf, at::ArrayRef<double> policy);

}  // namespace ampscaler::ops
