// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The CUDA backends of the operators, torch's side: checks, the list as a plan, addresses of scalars and
// results, launches. Contracts: ampscaler/ops.h. What needs a GPU or its driver is behind device_call.h
// and launch.h, so tests run all of this on the CPU.

#include "ops/signatures.h"

namespace ampscaler::cuda {

ops::UnscaleFunction unscale;
ops::UpdateScaleFunction update_scale;
ops::AdvanceScaleFunction advance_scale;
ops::GradStatsFunction grad_stats;
ops::GradStatsFunction unscale_with_stats;
ops::UnscaleClampFunction unscale_clamp;
ops::ScaleGradsFunction scale_grads;
ops::GradNormsFunction grad_norms;
ops::FindNonfiniteFunction find_nonfinite;
ops::MergeStatsFunction merge_stats;
ops::StepFactorsFunction step_factors;

}  // namespace ampscaler::cuda
