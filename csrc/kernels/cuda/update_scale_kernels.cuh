// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Applies the scale rule of core/scale_rule.h to three scalars on the device, in one thread.

#include "core/scale_rule.h"
#include "kernels/cuda/device_compat.cuh"

namespace ampscaler::cuda {

__global__ void update_scale_kernel(float* scale, std::int32_t* growth_tracker,
                                    const float* found_inf, core::ScaleRule rule,
                                    core::ScaleLimits limits) {
  const core::ScaleState next =
      core::advance_scale({*scale, *growth_tracker}, rule, limits, *found_inf);
  *scale = next.scale;
  *growth_tracker = next.growth_tracker;
}

}  // namespace ampscaler::cuda
