// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Memory on the harness: shared variables, stacks, and what the sanitizers see when a kernel leaves
// its memory.

#include "simt/simt.h"
// The harness comes first.
#include <cmath>
#include <vector>

#include "simt/seeds.h"

namespace simt::test {
namespace {

// ---- shared memory ----

template <typename T>
__global__ void uninitialised_kernel(float* result) {
  AMPSCALER_SHARED(T, value);
  result[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<float>(value);
  __syncthreads();
  value = static_cast<T>(1.0F);  // for the next block
  __syncthreads();
}

// One thread: two of them would write `value` at once.
TEST(SimtShared, UninitialisedMemoryReadsNan) {
  std::vector<float> result(8);
  launch(dim3(8), dim3(1), with_seed(0, 1), &uninitialised_kernel<float>, result.data());
  for (const float value : result) {
    EXPECT_TRUE(std::isnan(value));
  }
  launch(dim3(8), dim3(1), with_seed(0, 1), &uninitialised_kernel<double>, result.data());
  EXPECT_TRUE(std::isnan(result[7]));
}

__global__ void block_sum_kernel(int* sums) {
  AMPSCALER_SHARED(int, sum);
  if (threadIdx.x == 0) {
    sum = 0;
  }
  __syncthreads();
  atomicAdd(&sum, static_cast<int>(blockIdx.x));
  __syncthreads();
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
  }
}

TEST(SimtShared, EachBlockHasItsOwn) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<int> sums(12);
    launch(dim3(12), dim3(40), with_seed(seed, 3), &block_sum_kernel, sums.data());
    for (int block = 0; block < 12; ++block) {
      EXPECT_EQ(sums[block], block * 40);
    }
  }
}

__global__ void large_kernel(float* result) {
  AMPSCALER_SHARED(float[6 * 1024], first);
  AMPSCALER_SHARED(float[6 * 1024 + 1], second);
  first[0] = second[0] = *result;
}

TEST(SimtShared, HasFortyEightKilobytes) {
  float value = 0.0F;
  EXPECT_TRUE(mentions(complaint(dim3(1), dim3(1), {}, &large_kernel, &value),
                       {"a block may have 49152 bytes, asked for 49156"}));
}

// ---- what only the sanitizers see ----

#if defined(__SANITIZE_ADDRESS__)

__global__ void overrun_kernel(int* data, int count) {
  AMPSCALER_SHARED(int[5], shared);
  shared[threadIdx.x % 5] = 1;
  if (static_cast<int>(threadIdx.x) < count) {
    data[threadIdx.x] = 1;
  }
  int* beyond = shared + threadIdx.x;
  if (count < 0 && threadIdx.x == 5) {
    *beyond = 1;
  }
}

TEST(SimtSanitizers, OverrunsEndTheProgram) {
  std::vector<int> data(7);
  launch(dim3(2), dim3(32), {}, &overrun_kernel, data.data(), 7);
  EXPECT_DEATH(launch(dim3(2), dim3(32), {}, &overrun_kernel, data.data(), 8),
               "heap-buffer-overflow(.|\n)*overrun_kernel");
  EXPECT_DEATH(launch(dim3(2), dim3(32), {}, &overrun_kernel, data.data(), -1),
               "heap-buffer-overflow(.|\n)*overrun_kernel");
}

__global__ void vector_kernel(uint4* data) { data[threadIdx.x].x = 1; }

TEST(SimtSanitizers, MisalignedAccessEndsTheProgram) {
  std::vector<uint4> data(3);
  launch(dim3(1), dim3(2), {}, &vector_kernel, data.data());
  auto* misaligned = reinterpret_cast<uint4*>(reinterpret_cast<char*>(data.data()) + 8);
  EXPECT_DEATH(launch(dim3(1), dim3(2), {}, &vector_kernel, misaligned), "misaligned address");
}

__global__ void bool_kernel(int* result) {
  AMPSCALER_SHARED(bool, flag);
  if (flag) {
    *result = 1;
  }
}

TEST(SimtSanitizers, AnUnwrittenSharedBoolEndsTheProgram) {
  int result = 0;
  EXPECT_DEATH(launch(dim3(1), dim3(1), {}, &bool_kernel, &result), "not a valid value for type");
}

#endif

__global__ void deep_kernel(int* result, int depth) {
  volatile char large[1024 * 1024];
  large[static_cast<std::size_t>(depth)] = 1;
  *result = large[static_cast<std::size_t>(depth)];
}

TEST(SimtStacks, TheirSizeIsAnOption) {
  Options options;
  options.stack_bytes = 2 * 1024 * 1024;
  int result = 0;
  launch(dim3(1), dim3(1), options, &deep_kernel, &result, 17);
  EXPECT_EQ(result, 1);
}

}  // namespace
}  // namespace simt::test
