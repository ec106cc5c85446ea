// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// launch_scale_grads(). No ATen header here: it would be parsed once per architecture.

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/scale_grads_op.cuh"

namespace ampscaler::cuda {

cudaError_t launch_scale_grads(const core::UnitPlan& plan, const float* factor,
                               const float* found_inf, int multiprocessors, cudaStream_t stream) {
  CudaLauncher launcher{stream};
  scale_grads_pass(launcher, plan, factor, found_inf, multiprocessors);
  return launcher.error;
}

}  // namespace ampscaler::cuda
