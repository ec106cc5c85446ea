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

cudaError_t launch_unscale(ElementType type, const std::vector<core::FlatTensor>& tensors,
                           const float* inv_scale, float* found_inf, cudaStream_t stream) {
  core::UnitPlan plan;
  plan.reserve(tensors.size());
  for (const core::FlatTensor& tensor : tensors) {
    plan.add(reinterpret_cast<std::uint64_t>(tensor.data), tensor.size,
             static_cast<core::DataType>(type));
  }
  int device = 0;
  int multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  return error != cudaSuccess ? error
                              : launch_unscale(plan, inv_scale, found_inf, multiprocessors, stream);
}

}  // namespace ampscaler::cuda
