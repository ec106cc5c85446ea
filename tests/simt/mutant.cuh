// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// A kernel made to be broken: scales several tensors, sums their values, counts non-finite ones, and
// lets the last block finish, with all that the real kernels use. -DBUG=n plants defect n of the 15
// that mutations.py lists; 0 is right.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/device_compat.cuh"

#if !defined(BUG)
#define BUG 0
#endif

namespace simt::test {

inline constexpr int kMutantThreads = 128;
inline constexpr int kMutantWarps = kMutantThreads / 32;
inline constexpr int kMutantChunk = 512;
inline constexpr int kMutantTensors = 8;
inline constexpr int kMutantBlocks = 6;

struct MutantTable {
  float* data[kMutantTensors];
  int size[kMutantTensors];
};

/// Zero before the first launch, and again after each.
struct MutantScratch {
  float sums[kMutantBlocks];
  unsigned nonfinite;
  unsigned counter;
};

struct MutantResult {
  float sum;
  float largest;
  unsigned nonfinite;
};

__device__ inline float warp_sum(float value) {
  for (unsigned distance = 16; distance > 0; distance /= 2) {
    value += __shfl_down_sync(0xFFFF'FFFFU, value, distance);
  }
  return value;
}

__device__ inline bool mutant_element(float& element, float factor, float& sum) {
  const float value = element;
  element = value * factor;
  const bool is_finite = std::fabs(value) <= 3.4e38F;
  sum += is_finite ? value : 0.0F;
  return is_finite;
}

// Returns how many values of the thread's part of [begin, end) are not finite.
__device__ inline unsigned mutant_chunk(float* data, int begin, int end, float factor, float& sum) {
  unsigned nonfinite = 0;
  int i = begin + static_cast<int>(threadIdx.x);
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(data + begin) % sizeof(float4) == 0;
  if (is_aligned || BUG == 7) {
    const int vectors = (end - begin) / 4;
    for (int v = static_cast<int>(threadIdx.x); v < vectors; v += kMutantThreads) {
      float4& place = reinterpret_cast<float4*>(data + begin)[v];
      float4 vector = place;
      nonfinite += mutant_element(vector.x, factor, sum) ? 0 : 1;
      nonfinite += mutant_element(vector.y, factor, sum) ? 0 : 1;
      nonfinite += mutant_element(vector.z, factor, sum) ? 0 : 1;
      nonfinite += mutant_element(vector.w, factor, sum) ? 0 : 1;
      place = vector;
    }
    i += vectors * 4;
  }
  for (; i < end + (BUG == 8 ? 1 : 0); i += kMutantThreads) {
    nonfinite += mutant_element(data[i], factor, sum) ? 0 : 1;
    if (BUG == 15 && __any_sync(0xFFFF'FFFFU, nonfinite > 0) != 0) {
      nonfinite += 0;
    }
  }
  return nonfinite;
}

// Of the whole block, for thread 0.
__device__ inline float block_sum(float value, unsigned rank) {
  AMPSCALER_SHARED(float[kMutantWarps], partials);
  const unsigned warp = rank / 32;
  const unsigned lane = rank % 32;
  const float of_warp = warp_sum(value);
  if (lane == 0) {
    partials[warp] = of_warp;
  }
  if (BUG != 1 && (BUG != 3 || warp == 0)) {
    __syncthreads();
  }
  float sum = 0.0F;
  if (warp == 0 && (BUG != 4 || lane < kMutantWarps)) {
    sum = warp_sum(lane < kMutantWarps + (BUG == 10 ? 1 : 0) ? partials[lane] : 0.0F);
  }
  if (BUG != 2) {
    __syncthreads();
  }
  return sum;
}

// The largest of a warp's values, for lane 0, through shared memory.
__device__ inline float warp_largest(float value, unsigned lane) {
  AMPSCALER_SHARED(float[32], tree);
  tree[lane] = value;
  for (unsigned distance = 16; distance > 0; distance /= 2) {
    if (BUG != 13) {
      __syncwarp();
    }
    if (lane < distance) {
      tree[lane] = std::fmax(tree[lane], tree[lane + distance]);
    }
  }
  return tree[lane];
}

// Thread 0's fences cover the other threads' writes, which its barriers have brought to it.
__device__ inline bool arrive_last(MutantScratch* scratch) {
  AMPSCALER_SHARED(bool, is_last);
  __syncthreads();
  if (threadIdx.x == 0) {
    if (BUG != 5) {
      __threadfence();
    }
    const unsigned before =
        BUG == 11 ? atomicAdd(&scratch->counter, 1U) : atomicInc(&scratch->counter, gridDim.x - 1);
    is_last = before == gridDim.x - 1;
    if (BUG != 12) {
      __threadfence();
    }
  }
  if (BUG != 6) {
    __syncthreads();
  }
  return is_last;
}

__device__ inline void mutant_finish(MutantScratch* scratch, MutantResult* result) {
  const unsigned lane = threadIdx.x;
  const float of_block = lane < gridDim.x ? __ldcg(scratch->sums + lane) : 0.0F;
  const float sum = warp_sum(of_block);
  const float largest = warp_largest(of_block, lane);
  if (lane == 0) {
    *result = {sum, largest, scratch->nonfinite};
    scratch->nonfinite = 0;
  }
}

__global__ void __launch_bounds__(kMutantThreads, 2)
    mutant_kernel(AMPSCALER_GRID_CONSTANT(MutantTable) table, float factor, MutantScratch* scratch,
                  MutantResult* result) {
  float sum = 0.0F;
  int chunk = 0;
  for (int t = 0; t < kMutantTensors; ++t) {
    for (int begin = 0; begin < table.size[t]; begin += kMutantChunk, ++chunk) {
      if (chunk % static_cast<int>(gridDim.x) != static_cast<int>(blockIdx.x)) {
        continue;
      }
      if (BUG == 9 && scratch->nonfinite > 0) {
        continue;
      }
      const int rest = table.size[t] - begin;
      const int end = begin + (rest < kMutantChunk ? rest : kMutantChunk);
      float of_thread = 0.0F;
      const unsigned nonfinite = mutant_chunk(table.data[t], begin, end, factor, of_thread);
      if (nonfinite > 0 && BUG != 14) {
        atomicAdd(&scratch->nonfinite, nonfinite);
      } else if (nonfinite > 0) {
        __stcg(&scratch->nonfinite, __ldcg(&scratch->nonfinite) + nonfinite);
      }
      sum += block_sum(of_thread, threadIdx.x);
    }
  }
  if (threadIdx.x == 0) {
    scratch->sums[blockIdx.x] = sum;
  }
  if (arrive_last(scratch) && threadIdx.x < 32) {
    mutant_finish(scratch, result);
  }
}

}  // namespace simt::test
