// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Registers the CUDA backends. Lists with sparse gradients, `merge_stats` and `step_factors` have none:
// they go by torch's operators, as on devices without kernels of ours.

#include <torch/library.h>

#include "kernels/cuda/backends.h"

namespace ampscaler::cuda {

TORCH_LIBRARY_IMPL(ampscaler, CUDA, library) {
  library.impl("unscale_", static_cast<ops::UnscaleFunction*>(&unscale));
  library.impl("update_scale_", static_cast<ops::UpdateScaleFunction*>(&update_scale));
  library.impl("advance_scale_", static_cast<ops::AdvanceScaleFunction*>(&advance_scale));
  library.impl("grad_stats", static_cast<ops::GradStatsFunction*>(&grad_stats));
  library.impl("unscale_with_stats_", static_cast<ops::GradStatsFunction*>(&unscale_with_stats));
  library.impl("unscale_clamp_", static_cast<ops::UnscaleClampFunction*>(&unscale_clamp));
  library.impl("scale_grads_", static_cast<ops::ScaleGradsFunction*>(&scale_grads));
  library.impl("grad_norms", static_cast<ops::GradNormsFunction*>(&grad_norms));
  library.impl("find_nonfinite", static_cast<ops::FindNonfiniteFunction*>(&find_nonfinite));
}

}  // namespace ampscaler::cuda
