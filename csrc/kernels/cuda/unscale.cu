// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// launch_unscale(). No ATen header here: it would be parsed once per architecture.

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/unscale_op.cuh"

namespace ampscaler::cuda {

cudaError_t launch_unscale(const core::UnitPlan& plan, const float* inv_scale, float* found_inf,
                           int multiprocessors, cudaStream_t stream) {
  CudaLauncher launcher{stream};
  unscale_pass(launcher, plan, inv_scale, found_inf, multiprocessors);
  return launcher.error;
}

}  // namespace ampscaler::cuda
