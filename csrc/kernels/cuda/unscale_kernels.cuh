// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Multiplies every gradient of a table by inv_scale and notes non-finite inputs. Reads and writes
// each element once. Reference: kernels/cpu/unscale_cpu.cpp. Contract: ampscaler/ops.h. Chunks:
// core/tensor_table.h.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/finite.h"
#include "core/tensor_table.h"
#include "kernels/cuda/device_compat.cuh"

namespace ampscaler::cuda {

inline constexpr int kUnscaleThreads = 256;

// ---- device helpers ----

// The type in which products are formed.
template <typename T>
struct Compute {
  using Type = float;
};
template <>
struct Compute<double> {
  using Type = double;
};

__device__ inline float load(float value) { return value; }
__device__ inline double load(double value) { return value; }
__device__ inline float load(__half value) { return __half2float(value); }
__device__ inline float load(__nv_bfloat16 value) { return __bfloat162float(value); }

__device__ inline void store(float& target, float value) { target = value; }
__device__ inline void store(double& target, double value) { target = value; }
__device__ inline void store(__half& target, float value) { target = __float2half_rn(value); }
__device__ inline void store(__nv_bfloat16& target, float value) {
  target = __float2bfloat16_rn(value);
}

// aten's CUDA operator narrows before it tests, so that a float64 beyond float32 counts as an
// overflow there; so does it here.
template <typename Value>
__device__ bool is_finite_on_cuda(Value value) {
  return core::is_finite(static_cast<float>(value));
}

// Returns true if the element was finite. A factor of 1 keeps the value.
template <typename T>
__device__ bool unscale_element(T& element, typename Compute<T>::Type inv_scale) {
  const auto value = load(element);
  store(element, inv_scale == 1 ? value : value * inv_scale);
  return is_finite_on_cuda(value);
}

// ---- kernel ----

// Blocks take chunks in turn; the threads of a block take neighbouring elements:
//   chunk:   | t0 t1 ... t255 | t0 t1 ... t255 | ...
// The flag is written by many threads at once without an atomic: all of them write 1, and nobody
// reads it in this launch.
template <typename T>
__global__ void unscale_kernel(SIMT_GRID_CONSTANT(core::TensorTable) table, std::int64_t chunks,
                               const float* inv_scale, float* found_inf) {
  const auto factor = static_cast<typename Compute<T>::Type>(*inv_scale);
  for (std::int64_t i = blockIdx.x; i < chunks; i += gridDim.x) {
    const core::Chunk chunk = core::find_chunk(table, i);
    T* data = static_cast<T*>(table.tensors[chunk.tensor].data);
    bool finite = true;
    for (std::int64_t element = chunk.begin + threadIdx.x; element < chunk.end;
         element += kUnscaleThreads) {
      finite &= unscale_element(data[element], factor);
    }
    if (!finite) {
      *found_inf = 1.0F;
    }
  }
}

}  // namespace ampscaler::cuda
