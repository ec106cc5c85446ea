// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The launch functions of csrc/kernels/cuda as they are, but with the launcher beside this file: kernels run
// in the SIMT harness.

#include "simt/simt.h"
// The harness comes first.
#include "kernels/cuda/find_nonfinite.cu"
#include "kernels/cuda/grad_norms.cu"
#include "kernels/cuda/grad_stats.cu"
#include "kernels/cuda/scale_grads.cu"
#include "kernels/cuda/step_factors.cu"
#include "kernels/cuda/unscale.cu"
#include "kernels/cuda/unscale_clamp.cu"
#include "kernels/cuda/unscale_with_stats.cu"
#include "kernels/cuda/update_scale.cu"
