// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The only place with a <<< >>>: launches on one stream and keeps the first error.

#include <cuda_runtime_api.h>

namespace ampscaler::cuda {

struct CudaLauncher {
  cudaStream_t stream;
  cudaError_t error = cudaSuccess;

  template <typename... Parameters, typename... Arguments>
  void launch(dim3 grid, dim3 block, void (*kernel)(Parameters...), const Arguments&... arguments) {
    kernel<<<grid, block, 0, stream>>>(arguments...);
    const cudaError_t status = cudaGetLastError();
    error = error == cudaSuccess ? status : error;
  }
};

}  // namespace ampscaler::cuda
