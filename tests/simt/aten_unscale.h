// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// aten's unscale operator on the CPU for tests of kernels, which torch's headers must not meet.

#include <cstdint>

#include "core/data_type.h"

namespace ampscaler::cuda::test {

/// aten::_amp_foreach_non_finite_check_and_unscale_ on one flat tensor; returns found_inf.
float aten_unscale(void* values, std::int64_t elements, core::DataType dtype, float inv_scale);

}  // namespace ampscaler::cuda::test
