// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// launch_update_scale(): one thread on three scalars.

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/update_scale_kernels.cuh"

namespace ampscaler::cuda {

cudaError_t launch_update_scale(float* scale, std::int32_t* growth_tracker, const float* found_inf,
                                const core::ScaleRule& rule, const core::ScaleLimits& limits,
                                cudaStream_t stream) {
  CudaLauncher launcher{stream};
  launcher.launch(dim3(1), dim3(1), &update_scale_kernel, scale, growth_tracker, found_inf, rule,
                  limits);
  return launcher.error;
}

}  // namespace ampscaler::cuda
