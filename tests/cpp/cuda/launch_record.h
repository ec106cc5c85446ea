// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What the CUDA backends did while they were run on the CPU, and which launch is to fail.

#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/cuda/pass_arguments.h"

namespace ampscaler::cuda::test {

struct LaunchRecord {
  std::vector<cudaStream_t> streams;  // one for each launch
  int failing_launch = 0;             // counted from 1
  Workspace workspace = {};
};

LaunchRecord& launch_record();

/// What the stand-in for torch's current stream is; launches must go there.
cudaStream_t current_stream();

}  // namespace ampscaler::cuda::test
