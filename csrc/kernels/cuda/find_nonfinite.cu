// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// launch_find_nonfinite(). No ATen header here: it would be parsed once per architecture.

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/find_nonfinite_op.cuh"
#include "kernels/cuda/launch.h"

namespace ampscaler::cuda {

cudaError_t launch_find_nonfinite(const core::UnitPlan& plan, const std::vector<bool>& is_complex,
                                  std::int64_t* rows, int multiprocessors, cudaStream_t stream) {
  CudaLauncher launcher{stream};
  find_nonfinite_pass(launcher, plan, is_complex, rows, multiprocessors);
  return launcher.error;
}

}  // namespace ampscaler::cuda
