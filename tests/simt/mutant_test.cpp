// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The kernel of mutant.cuh against a plain loop. With BUG=1 to 15 it must fail, in the builds that
// mutations.py names: a test of the harness and of the schedules that are tried.

#include "simt/simt.h"
// The harness comes first.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "simt/build_kind.h"
#include "simt/mutant.cuh"

namespace simt::test {
namespace {

constexpr std::uint64_t kSeeds = kFindsRaces ? 4 : kHasAddressSanitizer ? 6 : 40;

constexpr std::array<int, kMutantTensors> kSizes{1, 7, 130, 512, 513, 1023, 2049, 600};
constexpr std::size_t kMisaligned = 5;

// Whole numbers, so that no order of adding them changes their sum.
class Tensors {
 public:
  explicit Tensors(bool with_infinity) {
    for (std::size_t t = 0; t < kSizes.size(); ++t) {
      const std::size_t offset = t == kMisaligned ? 1 : 0;
      memory_.emplace_back(kSizes[t] + offset);
      table.data[t] = memory_[t].data() + offset;
      table.size[t] = kSizes[t];
      for (int i = 0; i < kSizes[t]; ++i) {
        const bool is_infinite = with_infinity && i % 11 == 3;
        before_[t].push_back(is_infinite ? std::numeric_limits<float>::infinity()
                                         : static_cast<float>(i % 8 + 1));
        table.data[t][i] = before_[t][i];
      }
    }
  }

  double sum() const {  // of finite values
    double result = 0.0;
    for (const auto& values : before_) {
      for (const float value : values) {
        result += value < 100.0F ? value : 0.0F;
      }
    }
    return result;
  }

  unsigned nonfinite() const {
    unsigned result = 0;
    for (const auto& values : before_) {
      for (const float value : values) {
        result += value < 100.0F ? 0 : 1;
      }
    }
    return result;
  }

  void expect_scaled(float factor) const {
    for (std::size_t t = 0; t < kSizes.size(); ++t) {
      for (int i = 0; i < kSizes[t]; ++i) {
        ASSERT_EQ(table.data[t][i], before_[t][i] * factor) << "tensor " << t << " element " << i;
      }
    }
  }

  MutantTable table;

 private:
  std::vector<std::vector<float>> memory_;
  std::array<std::vector<float>, kMutantTensors> before_;
};

void expect_right_result(std::uint64_t seed, bool with_infinity, MutantScratch& scratch) {
  const Tensors tensors(with_infinity);
  MutantResult result{-1.0F, -1.0F, 77};
  Options options;
  options.seed = seed;
  options.resident_blocks = 8;
  launch(dim3(kMutantBlocks), dim3(kMutantThreads), options, &mutant_kernel, tensors.table, 0.5F,
         &scratch, &result);
  tensors.expect_scaled(0.5F);
  EXPECT_EQ(result.sum, tensors.sum());
  EXPECT_EQ(result.largest, *std::max_element(scratch.sums, scratch.sums + kMutantBlocks));
  EXPECT_EQ(result.nonfinite, tensors.nonfinite());
}

TEST(Mutant, IsRightInEveryOrderTwiceInARow) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    for (const bool with_infinity : {false, true}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " infinity " << with_infinity);
      MutantScratch scratch{};
      expect_right_result(seed, with_infinity, scratch);
      expect_right_result(seed, with_infinity, scratch);
      if (HasFailure()) {
        return;
      }
    }
  }
}

}  // namespace
}  // namespace simt::test
