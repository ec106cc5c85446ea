// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The harness's barriers and warp operations: right results in any order, and an error for each
// wrong use.

#include "simt/simt.h"
// The harness comes first.
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "simt/seeds.h"

namespace simt::test {
namespace {

constexpr unsigned kAll = 0xFFFF'FFFFU;

// ---- warp operations against hand-computed values ----

__global__ void shuffle_kernel(int* results, unsigned* votes) {
  const int lane = static_cast<int>(threadIdx.x);
  int* own = results + 8 * lane;
  own[0] = __shfl_sync(kAll, lane * 10, 5);
  own[1] = __shfl_up_sync(kAll, lane * 10, 3);
  own[2] = __shfl_down_sync(kAll, lane * 10, 3);
  own[3] = __shfl_xor_sync(kAll, lane * 10, 1);
  own[4] = __shfl_sync(kAll, lane * 10, 5, 4);
  own[5] = __shfl_up_sync(kAll, lane * 10, 1, 4);
  own[6] = __shfl_down_sync(kAll, lane * 10, 1, 4);
  own[7] = __shfl_xor_sync(kAll, lane * 10, 6, 4);
  votes[3 * lane] = __ballot_sync(kAll, lane % 3 == 0 ? 4 : 0);
  votes[3 * lane + 1] = static_cast<unsigned>(__any_sync(kAll, lane == 7 ? -1 : 0));
  votes[3 * lane + 2] = static_cast<unsigned>(__all_sync(kAll, lane == 7 ? 0 : 1));
}

TEST(Simt, WarpOperationsGiveWhatCudaGives) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    std::vector<int> results(256);
    std::vector<unsigned> votes(96);
    launch(dim3(1), dim3(32), with_seed(seed), &shuffle_kernel, results.data(), votes.data());
    for (int lane = 0; lane < 32; ++lane) {
      const int first = lane / 4 * 4;
      const std::vector<int> expected{
          50, (lane < 3 ? lane : lane - 3) * 10, (lane + 3 > 31 ? lane : lane + 3) * 10,
          (lane % 2 == 0 ? lane + 1 : lane - 1) * 10, (first + 1) * 10,
          (lane == first ? lane : lane - 1) * 10, (lane == first + 3 ? lane : lane + 1) * 10,
          // 6 = 4 + 2 leaves the segment upwards or downwards; the
          // latter reads there.
          ((lane ^ 6) > first + 3 ? lane : (lane ^ 6)) * 10};
      EXPECT_EQ(std::vector<int>(&results[8 * lane], &results[8 * lane] + 8), expected) << lane;
      EXPECT_EQ(votes[3 * lane], 0x49249249U);
      EXPECT_EQ(votes[3 * lane + 1], 1U);
      EXPECT_EQ(votes[3 * lane + 2], 0U);
    }
  }
}

struct Sixteen {
  double a;
  float b;
  int c;
};

__global__ void half_warps_kernel(double* results) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned half = lane < 16 ? 0xFFFFU : 0xFFFF'0000U;
  double sum = lane;
  for (int distance = 8; distance > 0; distance /= 2) {  // each half for itself
    sum += __shfl_xor_sync(half, sum, distance);
  }
  const Sixteen all{sum, 1.0F, 2};
  const Sixteen other = __shfl_xor_sync(kAll, all, 16);  // then all together
  results[threadIdx.x] = sum * 1000 + other.a * other.b;
}

TEST(Simt, PartsOfAWarpWorkApartAndThenTogether) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<double> results(64);
    launch(dim3(1), dim3(64), with_seed(seed), &half_warps_kernel, results.data());
    for (int i = 0; i < 64; ++i) {
      EXPECT_EQ(results[i], i % 32 < 16 ? 120 * 1000 + 376 : 376 * 1000 + 120);
    }
  }
}

__global__ void absent_lane_kernel(float* result) {
  if (threadIdx.x < 16) {
    result[threadIdx.x] = __shfl_down_sync(0xFFFFU, 1.0F, 1);
  }
}

TEST(Simt, AnAbsentLaneGivesNan) {
  std::vector<float> result(16);
  launch(dim3(1), dim3(32), {}, &absent_lane_kernel, result.data());
  EXPECT_EQ(result[14], 1.0F);
  EXPECT_TRUE(std::isnan(result[15]));
}

__global__ void barrier_kernel(int* results) {
  const int rank = static_cast<int>(threadIdx.x);
  results[4 * rank] = __syncthreads_or(rank == 77 ? 1 : 0);
  results[4 * rank + 1] = __syncthreads_and(rank == 77 ? 0 : 1);
  results[4 * rank + 2] = __syncthreads_count(rank % 2);
  results[4 * rank + 3] = __syncthreads_or(0);
}

TEST(Simt, BarriersReduce) {
  std::vector<int> results(400);
  launch(dim3(1), dim3(100), with_seed(3), &barrier_kernel, results.data());
  for (int rank = 0; rank < 100; ++rank) {
    const std::vector<int> own(&results[4 * rank], &results[4 * rank] + 4);
    EXPECT_EQ(own, (std::vector<int>{1, 0, 50, 0})) << rank;
  }
}

// ---- wrong uses ----

enum class Misuse {
  kNone,
  kDivergentBarrier,
  kEarlyReturn,
  kHalfWarpShuffle,
  kLaneOutsideItsMask,
  kTwoVotes,
  kMaskBeyondTheBlock,
  kWidth
};

__global__ void misuse_kernel(Misuse misuse) {
  const unsigned rank = threadIdx.x;
  if (misuse == Misuse::kDivergentBarrier && rank < 32) {
    __syncthreads();
  }
  if (misuse == Misuse::kEarlyReturn && rank == 5) {
    return;
  }
  if (misuse == Misuse::kHalfWarpShuffle && rank < 16) {
    __shfl_down_sync(kAll, 1, 1);
  }
  if (misuse == Misuse::kLaneOutsideItsMask && rank < 32) {
    __syncwarp(0xFFFFU);
  }
  if (misuse == Misuse::kTwoVotes && rank < 32 && rank % 2 == 0) {
    __any_sync(kAll, 1);
  } else if (misuse == Misuse::kTwoVotes && rank < 32) {
    __all_sync(kAll, 1);
  }
  if (misuse == Misuse::kMaskBeyondTheBlock && rank >= 32) {
    __syncwarp();
  }
  if (misuse == Misuse::kWidth) {
    __shfl_sync(rank < 32 ? kAll : 0xFFFFU, 1, 0, 12);
  }
  __syncthreads();
}

std::string complaint_about(Misuse misuse, std::uint64_t seed) {
  return complaint(dim3(2), dim3(48), with_seed(seed), &misuse_kernel, misuse);
}

void expect_reports(std::uint64_t seed) {
  EXPECT_EQ(complaint_about(Misuse::kNone, seed), "");
  EXPECT_TRUE(mentions(complaint_about(Misuse::kDivergentBarrier, seed),
                       {"barrier divergence: 32 thread(s) of block ", " in __syncthreads at ",
                        ", 16 thread(s) of block "}));
  EXPECT_TRUE(mentions(complaint_about(Misuse::kEarlyReturn, seed),
                       {"barrier after threads have ended: 1 thread(s) of block ",
                        " ended, 47 thread(s) of block "}));
  EXPECT_TRUE(mentions(complaint_about(Misuse::kHalfWarpShuffle, seed),
                       {"deadlock: 16 thread(s) of block 0 in __shfl_down_sync at ",
                        ", 32 thread(s) of block 0 in __syncthreads at "}));
  EXPECT_TRUE(mentions(complaint_about(Misuse::kLaneOutsideItsMask, seed),
                       {"__syncwarp at ", ", outside of its mask 0x0000ffff"}));
  EXPECT_TRUE(mentions(
      complaint_about(Misuse::kTwoVotes, seed),
      {"warp divergence, mask 0xffffffff: 16 thread(s) of block ", "__any_sync", "__all_sync"}));
  EXPECT_TRUE(mentions(complaint_about(Misuse::kMaskBeyondTheBlock, seed),
                       {"names lanes beyond the 16 of the warp"}));
  EXPECT_TRUE(mentions(complaint_about(Misuse::kWidth, seed), {"power of two up to 32, got 12"}));
}

TEST(Simt, WrongUsesAreReported) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    expect_reports(seed);
  }
}

TEST(Simt, ReportsNameTheLineOfTheKernel) {
  EXPECT_TRUE(mentions(complaint_about(Misuse::kEarlyReturn, 0), {"simt/collectives_test.cpp:"}));
}

TEST(Simt, ThreadsMayEndBeforeABarrierIfAllowed) {
  Options options;
  options.allow_exited_at_barrier = true;
  EXPECT_EQ(complaint(dim3(2), dim3(48), options, &misuse_kernel, Misuse::kEarlyReturn), "");
}

__global__ void nothing_kernel() {}

TEST(Simt, LaunchesThatCudaRefusesAreErrors) {
  EXPECT_EQ(complaint(dim3(1), dim3(1024), {}, &nothing_kernel), "");
  EXPECT_EQ(complaint(dim3(1), dim3(1025), {}, &nothing_kernel),
            "launch: expected 1 to 1024 threads per block, got (1025, 1, 1)");
  EXPECT_NE(complaint(dim3(1), dim3(0), {}, &nothing_kernel), "");
  EXPECT_EQ(complaint(dim3(0), dim3(32), {}, &nothing_kernel),
            "launch: expected at least 1 block and less than 2^32 threads, got (0, 1, 1) blocks");
}

// ---- blocks and threads ----

__global__ void index_kernel(std::uint32_t* counts) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  atomicAdd(counts + block * blockDim.x * blockDim.y * blockDim.z + thread, 1U);
}

TEST(Simt, EveryThreadRunsOnceAtItsIndex) {
  for (const int resident : {1, 3, 100}) {
    std::vector<std::uint32_t> counts(24 * 30);
    const Stats stats =
        launch(dim3(2, 3, 4), dim3(5, 3, 2), with_seed(4, resident), &index_kernel, counts.data());
    EXPECT_EQ(counts, std::vector<std::uint32_t>(24 * 30, 1));
    EXPECT_EQ(stats.threads, 24 * 30);
    EXPECT_GE(stats.switches, stats.threads);
  }
}

__global__ void order_kernel(unsigned* order, unsigned* next) {
  order[atomicAdd(next, 1U)] = blockIdx.x * blockDim.x + threadIdx.x;
}

std::vector<unsigned> order_of(std::uint64_t seed) {
  std::vector<unsigned> order(24);
  unsigned next = 0;
  launch(dim3(6), dim3(4), with_seed(seed, 2), &order_kernel, order.data(), &next);
  return order;
}

TEST(Simt, TheSeedDecidesTheOrder) {
  std::set<std::vector<unsigned>> orders;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(order_of(seed), order_of(seed));
    orders.insert(order_of(seed));
  }
  EXPECT_EQ(orders.size(), 20U);
  EXPECT_EQ(order_of(0).front(), 0U);
  EXPECT_EQ(order_of(0).back(), 23U);
  EXPECT_EQ(order_of(1)[0], 19U);  // the last thread of the block that was started last
  EXPECT_EQ(order_of(1)[1], 18U);
}

TEST(Simt, TheLauncherRemembersItsLaunches) {
  Launcher launcher;
  launcher.launch(dim3(2), dim3(32), &nothing_kernel);
  launcher.launch(dim3(3), dim3(64), &nothing_kernel);
  EXPECT_EQ(launcher.launches, 2);
  EXPECT_EQ(launcher.shapes[1].grid.x, 3U);
  EXPECT_EQ(launcher.shapes[1].block.x, 64U);
  EXPECT_EQ(launcher.total.threads, 2 * 32 + 3 * 64);
}

__global__ void throwing_kernel(std::vector<int>* empty) {
  if (threadIdx.x == 3) {
    empty->at(0) = 1;
  }
}

TEST(Simt, AnExceptionOfAKernelArrives) {
  std::vector<int> empty;
  EXPECT_TRUE(mentions(complaint(dim3(1), dim3(4), {}, &throwing_kernel, &empty),
                       {"thread 3 of block 0 threw: "}));
  EXPECT_EQ(complaint(dim3(1), dim3(3), {}, &throwing_kernel, &empty), "");  // all is well again
}

TEST(Simt, DeviceFunctionsAreForKernels) {
  EXPECT_THROW(__syncthreads(), Error);
  unsigned value = 0;
  EXPECT_THROW(atomicAdd(&value, 1U), Error);
}

}  // namespace
}  // namespace simt::test
