// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The one-pass operators have no derivative: calls skip autograd. Torch's fallback would instead mark
// results of gradients that require a gradient, warn in their backward, and box every list, which costs
// more than a pass over small gradients.

#include <torch/library.h>

TORCH_LIBRARY_IMPL(ampscaler, Autograd, library) {
  for (const char* name : {"grad_stats", "unscale_with_stats_", "unscale_clamp_", "scale_grads_",
                           "find_nonfinite", "grad_norms", "merge_stats", "step_factors"}) {
    library.impl(name, torch::CppFunction::makeFallthrough());
  }
}
