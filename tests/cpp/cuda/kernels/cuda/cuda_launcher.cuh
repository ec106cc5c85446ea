// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Found in place of the launcher of csrc/kernels/cuda by the .cu files when they are compiled for the CPU:
// runs the kernels in the SIMT harness.

#include <cuda_runtime_api.h>

#include "cpp/cuda/launch_record.h"
#include "simt/simt.h"

namespace ampscaler::cuda {

struct CudaLauncher {
  cudaStream_t stream;
  cudaError_t error = cudaSuccess;

  template <typename... Parameters, typename... Arguments>
  void launch(dim3 grid, dim3 block, void (*kernel)(Parameters...), const Arguments&... arguments) {
    test::LaunchRecord& record = test::launch_record();
    record.streams.push_back(stream);
    if (static_cast<int>(record.streams.size()) == record.failing_launch) {
      error = cudaErrorLaunchFailure;
    }
    if (error == cudaSuccess) {
      simt::Options options;
      options.seed = 5;  // random order
      simt::launch(grid, block, options, kernel, arguments...);
    }
  }
};

}  // namespace ampscaler::cuda
