// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// `step_factors` and `merge_stats` by the rules of core/step_scalars.h and core/merge_stats.h, in one thread
// each: what they read is a few numbers.

#include "core/merge_stats.h"
#include "core/step_scalars.h"
#include "kernels/cuda/scalars.cuh"

namespace ampscaler::cuda {

__global__ void step_factors_kernel(AMPSCALER_GRID_CONSTANT(StepArguments) arguments) {
  const core::GradScaling scaling =
      grad_scaling(number_or(arguments.scale, 1.0), arguments.divisor, arguments.user_scale);
  core::step_scalars(*arguments.found_inf, scaling, number_or(arguments.clip_coefficient, 1.0),
                     arguments.scalars);
}

template <typename Stats>
__global__ void merge_stats_kernel(AMPSCALER_GRID_CONSTANT(Stats) stats,
                                   AMPSCALER_GRID_CONSTANT(MergeArguments) arguments) {
  const core::ClipRule rule = {number_or(arguments.max_norm, arguments.limit), arguments.eps};
  core::merge_stats(stats, arguments.parts, arguments.norm_type, rule, arguments.stats,
                    arguments.factors);
}

}  // namespace ampscaler::cuda
