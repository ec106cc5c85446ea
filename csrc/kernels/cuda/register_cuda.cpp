// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Registers the CUDA backends. Lists with sparse gradients have none: they go by torch's operators, as on
// devices without kernels of ours.

#include <torch/library.h>

#include "kernels/cuda/backends.h"

namespace ampscaler::cuda {

TORCH_LIBRARY_IMPL(ampscaler, CUDA, library) {
  library.impl("unscale_", &unscale);
  library.impl("update_scale_", &update_scale);
  library.impl("advance_scale_", &advance_scale);
  library.impl("grad_stats", &grad_stats);
  library.impl("unscale_with_stats_", &unscale_with_stats);
  library.impl("unscale_clamp_", &unscale_clamp);
  library.impl("scale_grads_", &scale_grads);
  library.impl("grad_norms", &grad_norms);
  library.impl("find_nonfinite", &find_nonfinite);
  library.impl("merge_stats", &merge_stats);
  library.impl("step_factors", &step_factors);
}

}  // namespace ampscaler::cuda
