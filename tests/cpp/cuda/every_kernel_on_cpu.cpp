// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// tests/gpu/every_kernel.cu, which compute-sanitizer runs on a GPU, with kernels in the SIMT harness and
// memory of the CPU: what it expects of the kernels is known to be right before there is a GPU.

#include <cstdlib>
#include <cstring>

#include <cuda_runtime_api.h>

#include "cpp/cuda/launch_record.h"

// What the program calls of the CUDA runtime.
extern "C" {
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes / 256 + 1) * 256);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

const char* cudaGetErrorString(cudaError_t /*error*/) { return "a CUDA error"; }
}

namespace ampscaler::cuda::test {

LaunchRecord& launch_record() {
  static LaunchRecord record;
  return record;
}

cudaStream_t current_stream() { return nullptr; }

}  // namespace ampscaler::cuda::test

#include "gpu/every_kernel.cu"
