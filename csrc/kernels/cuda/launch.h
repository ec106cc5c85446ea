// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What the .cu files offer to the glue: raw pointers, sizes and an explicit stream. No torch, since
// nvcc reads every header once per architecture. Nothing here waits; each function returns the
// error of its launches.

#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

#include "core/merge_stats.h"
#include "core/scale_rule.h"
#include "core/units.h"
#include "kernels/cuda/pass_arguments.h"
#include "kernels/cuda/step_arguments.h"

namespace ampscaler::cuda {

/// See ampscaler/ops.h, unscale_. All pointers are on the current device, which has `multiprocessors`.
cudaError_t launch_unscale(const core::UnitPlan& plan, const float* inv_scale, float* found_inf,
                           int multiprocessors, cudaStream_t stream);

/// See ampscaler/ops.h, update_scale_ and advance_scale_.
cudaError_t launch_update_scale(float* scale, std::int32_t* growth_tracker, const float* found_inf,
                                const core::ScaleRule& rule, const core::ScaleLimits& limits,
                                cudaStream_t stream);

/// See ampscaler/ops.h, step_factors.
cudaError_t launch_step_factors(const StepArguments& arguments, cudaStream_t stream);

/// See ampscaler/ops.h, merge_stats.
cudaError_t launch_merge_stats(const StatsVectors& stats, const MergeArguments& arguments,
                               cudaStream_t stream);
cudaError_t launch_merge_stats(const core::StatsRows& stats, const MergeArguments& arguments,
                               cudaStream_t stream);

// The passes over a plan of units. `multiprocessors` is that of the current device.

/// See ampscaler/ops.h, grad_stats. For a plan without entries too.
cudaError_t launch_grad_stats(const core::UnitPlan& plan, const PassArguments& arguments,
                              int multiprocessors, cudaStream_t stream);

/// See ampscaler/ops.h, unscale_with_stats_.
cudaError_t launch_unscale_with_stats(const core::UnitPlan& plan, const PassArguments& arguments,
                                      int multiprocessors, cudaStream_t stream);

/// See ampscaler/ops.h, unscale_clamp_. `limit` is the largest magnitude; there is no limit of the norm.
cudaError_t launch_unscale_clamp(const core::UnitPlan& plan, const PassArguments& arguments,
                                 int multiprocessors, cudaStream_t stream);

/// See ampscaler/ops.h, scale_grads_.
cudaError_t launch_scale_grads(const core::UnitPlan& plan, const float* factor,
                               const float* found_inf, int multiprocessors, cudaStream_t stream);

/// See ampscaler/ops.h, grad_norms. The plan keeps empty tensors, and `norms` has a place for each entry.
/// `scratch` is memory of the device, of so many bytes, aligned to 8.
std::int64_t grad_norms_scratch_bytes(const core::UnitPlan& plan);
cudaError_t launch_grad_norms(const core::UnitPlan& plan, const float* scale, double norm_type,
                              void* scratch, float* norms, int multiprocessors,
                              cudaStream_t stream);

/// See ampscaler/ops.h, find_nonfinite. The plan keeps empty tensors and has complex gradients as pairs of
/// reals; `is_complex` tells which of its entries are such. `rows` has three words for each entry: the
/// index is the position in memory.
cudaError_t launch_find_nonfinite(const core::UnitPlan& plan, const std::vector<bool>& is_complex,
                                  std::int64_t* rows, int multiprocessors, cudaStream_t stream);

}  // namespace ampscaler::cuda
