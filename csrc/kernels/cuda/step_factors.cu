// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// launch_step_factors() and launch_merge_stats(): one thread each.

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/step_factors_kernels.cuh"

namespace ampscaler::cuda {

cudaError_t launch_step_factors(const StepArguments& arguments, cudaStream_t stream) {
  CudaLauncher launcher{stream};
  launcher.launch(dim3(1), dim3(1), &step_factors_kernel, arguments);
  return launcher.error;
}

cudaError_t launch_merge_stats(const StatsVectors& stats, const MergeArguments& arguments,
                               cudaStream_t stream) {
  CudaLauncher launcher{stream};
  launcher.launch(dim3(1), dim3(1), &merge_stats_kernel<StatsVectors>, stats, arguments);
  return launcher.error;
}

cudaError_t launch_merge_stats(const core::StatsRows& stats, const MergeArguments& arguments,
                               cudaStream_t stream) {
  CudaLauncher launcher{stream};
  launcher.launch(dim3(1), dim3(1), &merge_stats_kernel<core::StatsRows>, stats, arguments);
  return launcher.error;
}

}  // namespace ampscaler::cuda
