// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Copies of scalars between devices, the one way that is safe without a wait where none is needed.
// Exported for tests.

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include "ampscaler/export.h"

namespace ampscaler::ops {

/// A tensor of its own on `device`. Does not wait for an accelerator as target. A copy to the CPU waits: a
/// non-blocking one would be read before it has arrived. A scalar from the host travels as an argument of a
/// kernel: a copy of it would read the host's memory later, when it may hold something else, and pageable
/// memory cannot be copied while a CUDA graph is captured.
AMPSCALER_API at::Tensor copy_on_device(const at::Tensor& tensor, c10::Device device);

/// The same, but `tensor` itself if it is there already.
AMPSCALER_API at::Tensor on_device(const at::Tensor& tensor, c10::Device device);

/// The exact value of one element in the host's memory, which nobody has to wait for. Nothing for
/// accelerators, more elements, rarer dtypes, and what is not plain memory or has a derivative.
AMPSCALER_API std::optional<at::Scalar> value_on_host(const at::Tensor& tensor);

}  // namespace ampscaler::ops
