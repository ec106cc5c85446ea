// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// launch_grad_stats(). No ATen header here: it would be parsed once per architecture.

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/grad_stats_op.cuh"
#include "kernels/cuda/launch.h"

namespace ampscaler::cuda {

cudaError_t launch_grad_stats(const core::UnitPlan& plan, const PassArguments& arguments,
                              int multiprocessors, cudaStream_t stream) {
  CudaLauncher launcher{stream};
  stats_pass<ReadOnly>(launcher, plan, arguments, multiprocessors);
  return launcher.error;
}

}  // namespace ampscaler::cuda
