// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// launch_unscale(): one instance of the kernel per dtype. No ATen header here: it would be parsed
// once per architecture.

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/unscale_op.cuh"

namespace ampscaler::cuda {

cudaError_t launch_unscale(ElementType type, const std::vector<core::FlatTensor>& tensors,
                           const float* inv_scale, float* found_inf, cudaStream_t stream) {
  CudaLauncher launcher{stream};
  switch (type) {
    case ElementType::kFloat16:
      unscale_tensors<__half>(launcher, tensors, inv_scale, found_inf);
      break;
    case ElementType::kBFloat16:
      unscale_tensors<__nv_bfloat16>(launcher, tensors, inv_scale, found_inf);
      break;
    case ElementType::kFloat32:
      unscale_tensors<float>(launcher, tensors, inv_scale, found_inf);
      break;
    case ElementType::kFloat64:
      unscale_tensors<double>(launcher, tensors, inv_scale, found_inf);
      break;
  }
  return launcher.error;
}

}  // namespace ampscaler::cuda
