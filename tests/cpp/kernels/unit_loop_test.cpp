// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// How threads share the ranges of a pass: all of them once, large shares first and single ranges at the end.

#include "kernels/cpu/unit_loop.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace ampscaler::cpu {
namespace {

/// torch's thread count, for one test.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

core::UnitPlan plan_of_units(std::int64_t units) {
  core::UnitPlan plan;
  plan.add(/*address=*/0x1000, units * core::unit_elements(core::kFloat32), core::kFloat32);
  return plan;
}

TEST(UnitLoop, EveryRangeIsRunOnceWhateverTheNumbers) {
  for (const int threads : {1, 2, 3, 8}) {
    const Threads guard(threads);
    for (const std::int64_t ranges : {1, 2, 3, 31, 64, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(ranges));
      std::vector<std::atomic<int>> busy(static_cast<std::size_t>(worker_count(ranges)));
      std::atomic<int> at_once = 0;
      run_ranges(ranges, [&](std::int64_t worker, RangeShare share) {
        at_once += busy[static_cast<std::size_t>(worker)]++;
        for (std::int64_t range = share.begin; range < share.end; ++range) {
          ++runs[static_cast<std::size_t>(range)];
        }
        --busy[static_cast<std::size_t>(worker)];
      });
      for (const std::atomic<int>& count : runs) {
        EXPECT_EQ(count, 1) << ranges << " ranges, " << threads << " threads";
      }
      EXPECT_EQ(at_once, 0) << "one worker had two shares at a time";
    }
  }
}

TEST(UnitLoop, SharesShrinkToSingleRanges) {
  const Threads guard(2);
  const std::int64_t ranges = 64;
  std::vector<std::atomic<std::int64_t>> size_from(ranges);
  run_ranges(ranges, [&](std::int64_t /*worker*/, RangeShare share) {
    size_from[static_cast<std::size_t>(share.begin)] = share.end - share.begin;
  });
  std::vector<std::int64_t> sizes;
  for (std::int64_t begin = 0; begin < ranges; begin += sizes.back()) {
    sizes.push_back(size_from[static_cast<std::size_t>(begin)]);
    ASSERT_GT(sizes.back(), 0) << "no share begins at " << begin;
  }
  EXPECT_EQ(sizes.front(), 16);  // half of an equal share
  EXPECT_EQ(sizes.back(), 1);
  EXPECT_TRUE(std::ranges::is_sorted(sizes, std::greater()));
  EXPECT_LT(sizes.size(), 24U) << "each beginning waits for memory";
}

TEST(UnitLoop, SmallListsAndNestedRegionsStayOnTheThread) {
  const Threads guard(2);
  const core::UnitPlan large = plan_of_units(/*units=*/1024);
  EXPECT_EQ(range_count(plan_of_units(/*units=*/16)), 1) << "256 KiB";
  EXPECT_GT(range_count(large), 2);
  std::atomic<std::int64_t> nested = 0;
  at::parallel_for(0, 2, /*grain_size=*/1,
                   [&](std::int64_t, std::int64_t) { nested = range_count(large); });
  EXPECT_EQ(nested, 1);
}

TEST(UnitLoop, AnErrorReachesTheCaller) {
  const Threads guard(2);
  EXPECT_THROW(run_ranges(64, [](std::int64_t, RangeShare) { throw std::runtime_error("no"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace ampscaler::cpu
