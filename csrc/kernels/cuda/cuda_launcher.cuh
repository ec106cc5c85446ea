// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The only place with a <<< >>>: launches on one stream up to the first error, which it keeps.

#include <cuda_runtime_api.h>

namespace ampscaler::cuda {

struct CudaLauncher {
  cudaStream_t stream;
  cudaError_t error = cudaSuccess;

  template <typename... Parameters, typename... Arguments>
  void launch(dim3 grid, dim3 block, void (*kernel)(Parameters...), const Arguments&... arguments) {
    if (error != cudaSuccess) {
      return;  // what comes next may need what this one did not do
    }
    kernel<<<grid, block, 0, stream>>>(arguments...);
    error = cudaGetLastError();
  }
};

}  // namespace ampscaler::cuda
