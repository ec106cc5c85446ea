// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Races on the harness: pairs of a right kernel and one with a barrier, a fence or an atomic missing.
// The race build must tell them apart in every order, the plain build where values show it.

#include "simt/simt.h"
// The harness comes first.
#include <string>
#include <type_traits>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "simt/seeds.h"

namespace simt::test {
namespace {

constexpr std::uint64_t kSeeds = 60;
constexpr std::uint64_t kRaceSeeds = 5;  // one of each policy

// In the race build `kernel` is all right, or wrong, whatever the seed.
template <typename... Parameters, typename... Arguments>
void expect_race(bool is_wrong, dim3 grid, dim3 block, void (*kernel)(Parameters...),
                 const Arguments&... arguments) {
  for (std::uint64_t seed = 0; seed < kRaceSeeds; ++seed) {
    const std::string said = complaint(grid, block, with_seed(seed), kernel, arguments...);
    if (kFindsRaces && is_wrong) {
      EXPECT_TRUE(mentions(said, {"data race on 0x"})) << "seed " << seed;
    } else {
      EXPECT_EQ(said, "") << "seed " << seed;
    }
  }
}

// ---- barriers ----

// Rotates values through shared memory; a single buffer needs a second barrier.
template <bool kIsDouble, bool kSecondBarrier>
__global__ void rotate_kernel(int* values) {
  AMPSCALER_SHARED(int[128], buffers);
  const unsigned rank = threadIdx.x;
  for (unsigned round = 0; round < 8; ++round) {
    int* buffer = buffers + (kIsDouble && round % 2 == 1 ? 64 : 0);
    buffer[rank] = values[rank];
    __syncthreads();
    values[rank] = buffer[(rank + 1) % 64];
    if (kSecondBarrier) {
      __syncthreads();
    }
  }
}

// How many seeds give wrong values, where races go unnoticed.
int wrong_rotations(void (*kernel)(int*)) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::vector<int> values(64);
    for (int i = 0; i < 64; ++i) {
      values[i] = i;
    }
    if (complaint(dim3(1), dim3(64), with_seed(seed), kernel, values.data()).empty()) {
      wrong += values[0] == 8 && values[60] == 4 ? 0 : 1;
    }
  }
  return wrong;
}

TEST(SimtRaces, ASharedBufferThatIsUsedAgainNeedsABarrier) {
  std::vector<int> values(64);
  expect_race(false, dim3(1), dim3(64), &rotate_kernel<true, false>, values.data());
  expect_race(false, dim3(1), dim3(64), &rotate_kernel<false, true>, values.data());
  EXPECT_EQ(wrong_rotations(&rotate_kernel<true, false>), 0);
  EXPECT_EQ(wrong_rotations(&rotate_kernel<false, true>), 0);
  if (kFindsRaces) {
    expect_race(true, dim3(1), dim3(64), &rotate_kernel<false, false>, values.data());
  } else {
    EXPECT_GT(wrong_rotations(&rotate_kernel<false, false>), 0);
  }
}

TEST(SimtRaces, ReportsNameBothLines) {
  if (!kFindsRaces) {
    GTEST_SKIP() << "finds no races";
  }
  std::vector<int> values(64);
  const std::string said =
      complaint(dim3(1), dim3(64), {}, &rotate_kernel<false, false>, values.data());
  const std::string file = "race_test.cpp:";
  const std::size_t first = said.find(file);
  const std::size_t second = said.find(file, first + 1);
  ASSERT_NE(second, std::string::npos) << said;
  EXPECT_EQ(std::stoi(said.substr(first + file.size())) + 2,
            std::stoi(said.substr(second + file.size())))
      << said;  // the write of a round is not ordered after a read of the round before
}

template <bool kWithSyncwarp>
__global__ void warp_tree_kernel(int* sum) {
  AMPSCALER_SHARED(int[32], values);
  const unsigned lane = threadIdx.x;
  values[lane] = static_cast<int>(lane);
  for (unsigned distance = 16; distance > 0; distance /= 2) {
    if (kWithSyncwarp) {
      __syncwarp();
    }
    if (lane < distance) {
      values[lane] += values[lane + distance];
    }
  }
  if (lane == 0) {
    *sum = values[0];
  }
}

TEST(SimtRaces, AWarpIsNotInLockstep) {
  int sum = 0;
  expect_race(false, dim3(1), dim3(32), &warp_tree_kernel<true>, &sum);
  EXPECT_EQ(sum, 31 * 16);
  if (kFindsRaces) {
    expect_race(true, dim3(1), dim3(32), &warp_tree_kernel<false>, &sum);
  } else {
    launch(dim3(1), dim3(32), with_seed(0), &warp_tree_kernel<false>, &sum);
    EXPECT_NE(sum, 31 * 16);
  }
}

__global__ void shuffle_message_kernel(int* value, bool with_syncwarp) {
  if (threadIdx.x == 0) {
    *value = 5;
  }
  __shfl_sync(0xFFFF'FFFFU, 1, 0);
  if (with_syncwarp) {
    __syncwarp();
  }
  if (threadIdx.x == 1) {
    *value += 1;
  }
}

TEST(SimtRaces, AShuffleOrdersNoMemory) {
  int value = 0;
  expect_race(false, dim3(1), dim3(32), &shuffle_message_kernel, &value, true);
  EXPECT_EQ(value, 6);
  expect_race(true, dim3(1), dim3(32), &shuffle_message_kernel, &value, false);
}

// ---- atomics and fences ----

template <bool kIsVolatile>
__global__ void poll_kernel(unsigned* flag, unsigned* seen) {
  if (threadIdx.x == 0) {
    atomicOr(flag, 1U);
  } else {
    unsigned value = 0;
    if (kIsVolatile) {
      value = *static_cast<volatile unsigned*>(flag);
    } else {
      value = *flag;
    }
    atomicMax(seen, value);
  }
}

TEST(SimtRaces, AVolatileReadBesideAnAtomicIsFineAPlainOneIsNot) {
  unsigned flag = 0;
  unsigned seen = 0;
  expect_race(false, dim3(2), dim3(4), &poll_kernel<true>, &flag, &seen);
  expect_race(true, dim3(2), dim3(4), &poll_kernel<false>, &flag, &seen);
}

enum class Fences { kBoth, kOnlyBefore, kOnlyAfter, kBeforeTheBarrier };

// Each block writes, the last one to arrive reads what all have written.
__global__ void last_block_kernel(Fences fences, int* values, unsigned* counter, int* sum) {
  AMPSCALER_SHARED(bool, is_last);
  values[blockIdx.x * blockDim.x + threadIdx.x] = 1;
  if (fences == Fences::kBeforeTheBarrier) {
    __threadfence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    if (fences == Fences::kBoth || fences == Fences::kOnlyBefore) {
      __threadfence();
    }
    is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    if (fences != Fences::kOnlyBefore) {
      __threadfence();
    }
  }
  __syncthreads();
  if (is_last) {
    for (unsigned i = threadIdx.x; i < gridDim.x * blockDim.x; i += blockDim.x) {
      atomicAdd(sum, __ldcg(values + i));
    }
  }
}

TEST(SimtRaces, AMessageNeedsBothFencesAfterTheBarrier) {
  for (const Fences fences :
       {Fences::kBoth, Fences::kOnlyBefore, Fences::kOnlyAfter, Fences::kBeforeTheBarrier}) {
    std::vector<int> values(5 * 64);
    unsigned counter = 0;
    int sum = 0;
    expect_race(fences != Fences::kBoth, dim3(5), dim3(64), &last_block_kernel, fences,
                values.data(), &counter, &sum);
    if (fences == Fences::kBoth) {
      EXPECT_EQ(sum, static_cast<int>(kRaceSeeds) * 5 * 64);
      EXPECT_EQ(counter, 0U);
    }
  }
}

__global__ void volatile_message_kernel(int* value, volatile int* flag, bool with_fence) {
  if (blockIdx.x == 0) {
    *value = 7;
    __threadfence();
    *flag = 1;
  } else if (*flag == 1) {
    if (with_fence) {
      __threadfence();
    }
    *value += 1;
  }
}

TEST(SimtRaces, AMessageMayGoThroughAVolatileFlag) {
  for (const bool with_fence : {true, false}) {
    int value = 0;
    int flag = 0;
    const std::string said = complaint(dim3(2), dim3(1), with_seed(0), &volatile_message_kernel,
                                       &value, &flag, with_fence);
    EXPECT_EQ(said.empty(), with_fence || !kFindsRaces) << said;
  }
}

template <bool kIsAtomic>
__global__ void count_kernel(unsigned* counter) {
  if (kIsAtomic) {
    atomicAdd(counter, 1U);
  } else {
    __stcg(counter, __ldcg(counter) + 1);
  }
}

TEST(SimtRaces, CountingNeedsAnAtomic) {
  unsigned counter = 0;
  expect_race(false, dim3(4), dim3(32), &count_kernel<true>, &counter);
  EXPECT_EQ(counter, kRaceSeeds * 4 * 32);
  if (kFindsRaces) {
    expect_race(true, dim3(4), dim3(32), &count_kernel<false>, &counter);
  } else {
    counter = 0;
    launch(dim3(4), dim3(32), with_seed(3), &count_kernel<false>, &counter);
    EXPECT_LT(counter, 4U * 32);
  }
}

// Neighbouring bytes are different memory, overlapping accesses of any size are not.
__global__ void bytes_kernel(unsigned char* bytes, bool overlaps) {
  if (threadIdx.x == 32) {
    if (overlaps) {
      *reinterpret_cast<std::uint32_t*>(bytes + 4) = 0;
    }
  } else {
    bytes[threadIdx.x] = 1;
  }
}

TEST(SimtRaces, MemoryIsWatchedByByte) {
  alignas(8) unsigned char bytes[32] = {};
  expect_race(false, dim3(1), dim3(33), &bytes_kernel, static_cast<unsigned char*>(bytes), false);
  expect_race(true, dim3(1), dim3(33), &bytes_kernel, static_cast<unsigned char*>(bytes), true);
}

// What g++ sees of these depends on inlining.
template <typename T>
__device__ T converted(float value) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

template <typename T>
__global__ void convert_kernel(T* values, unsigned shared_elements) {
  values[threadIdx.x % shared_elements] = converted<T>(static_cast<float>(threadIdx.x));
}

template <typename T>
__global__ void read_converted_kernel(T* values) {
  if (threadIdx.x == 0) {
    values[0] = converted<T>(1.0F);
  } else if (static_cast<float>(values[0]) == 7.0F) {
    __threadfence();
  }
}

template <typename T>
void expect_conversions_are_watched() {
  std::vector<T> values(32);
  expect_race(false, dim3(1), dim3(32), &convert_kernel<T>, values.data(), 32U);
  expect_race(true, dim3(1), dim3(32), &convert_kernel<T>, values.data(), 31U);
  expect_race(true, dim3(1), dim3(2), &read_converted_kernel<T>, values.data());
}

TEST(SimtRaces, ConvertedValuesAreWatched) {
  expect_conversions_are_watched<__half>();
  expect_conversions_are_watched<__nv_bfloat16>();
}

__global__ void kept_stack_kernel(int** kept, int* result) {
  int own = 3;
  if (threadIdx.x == 0) {
    *kept = &own;
  }
  __syncthreads();
  if (threadIdx.x == 1) {
    *result = **kept;
  }
  __syncthreads();
}

TEST(SimtRaces, AStackBelongsToItsThread) {
  int* kept = nullptr;
  int result = 0;
  const std::string said = complaint(dim3(1), dim3(2), {}, &kept_stack_kernel, &kept, &result);
  if (kFindsRaces) {
    EXPECT_TRUE(mentions(said, {"thread 1 of block 0 uses the stack of another thread at "}));
  } else {
    EXPECT_EQ(result, 3);
  }
}

}  // namespace
}  // namespace simt::test
