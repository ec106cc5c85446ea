// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Calls of the passes under the harness, with their scalars and results, and what must come of them.

#include "simt/simt.h"
// The harness comes first.
#include <string>

#include <gtest/gtest.h>

#include "kernels/cuda/grad_stats_op.cuh"
#include "simt/build_kind.h"
#include "simt/pass_reference.h"

namespace ampscaler::cuda::test {

inline constexpr int kTestThreads = 64;

inline constexpr bool kIsSlow =
    simt::kFindsRaces || simt::kHasAddressSanitizer || simt::kCountsLines;

struct Schedule {
  std::uint64_t seed;
  int multiprocessors;  // two blocks each
  int resident_blocks;
};

/// In order, in reverse and at random; blocks one by one or together.
inline std::vector<Schedule> schedules() {
  if (kIsSlow) {
    return {{0, 1, 1}, {5, 3, 6}};
  }
  return {{0, 1, 1}, {1, 1, 1},  {2, 2, 4},  {3, 2, 4},
          {4, 2, 4}, {5, 8, 16}, {6, 8, 16}, {7, 8, 16}};
}

inline simt::Launcher launcher_for(const Schedule& schedule) {
  simt::Options options;
  options.seed = schedule.seed;
  options.resident_blocks = schedule.resident_blocks;
  return simt::Launcher(options);
}

/// Scalars and results of a call. The workspace outlives calls.
struct Call {
  float scale = 1.0F;
  double divisor = 1.0;
  float user_scale = 1.0F;
  double max_norm = kInfinity;
  double eps = 0.0;
  double norm_type = 2.0;
  core::GradSums* accumulate = nullptr;

  double stats[core::kStatsSlots];
  float factors[core::kFactorSlots];

  PassArguments arguments(Workspace& workspace, double limit = kInfinity) {
    std::fill(stats, stats + core::kStatsSlots, -7.0);
    std::fill(factors, factors + core::kFactorSlots, -7.0F);
    PassArguments result;
    result.scale = &scale;
    result.scalars[kDivisor] = &divisor;
    result.dtypes[kDivisor] = core::kFloat64;
    result.scalars[kUserScale] = &user_scale;
    result.dtypes[kUserScale] = core::kFloat32;
    result.scalars[kMaxNorm] = max_norm == kInfinity ? nullptr : &max_norm;
    result.dtypes[kMaxNorm] = core::kFloat64;
    result.limit = limit;
    result.eps = eps;
    result.norm_type = norm_type;
    result.workspace = &workspace;
    result.accumulate = accumulate;
    result.stats = stats;
    result.factors = factors;
    return result;
  }

  core::GradScaling scaling() const { return {static_cast<double>(scale), divisor, user_scale}; }
};

/// Clause C7 for CUDA: the largest relative error of a norm.
inline double norm_error(core::DataType dtype) {
  return dtype == core::kFloat64 ? 0x1p-23 : dtype == core::kFloat32 ? 0x1p-22 : 0x1p-20;
}

inline Workspace no_sums() {
  Workspace workspace;
  std::memset(&workspace, 0, sizeof(workspace));
  return workspace;
}

inline void expect_clean(const Workspace& workspace) {
  const Workspace zeros = no_sums();
  EXPECT_EQ(std::memcmp(&workspace, &zeros, sizeof(workspace)), 0) << "workspace";
}

/// The results that core/grad_stats.h draws from `sums`, to the bit.
inline void expect_results(const Call& call, core::GradSums sums, const std::string& what,
                           bool clips = true) {
  double stats[core::kStatsSlots];
  float factors[core::kFactorSlots];
  const core::ClipRule rule = {clips ? call.max_norm : kInfinity, call.eps};
  core::finish(sums, call.norm_type, call.scaling(), rule, stats, factors);
  for (int i = 0; i < core::kStatsSlots; ++i) {
    EXPECT_TRUE(same(call.stats[i], stats[i]))
        << what << " " << core::kStatsNames[i] << ": " << call.stats[i] << ", not " << stats[i];
  }
  for (int i = 0; i < core::kFactorSlots; ++i) {
    EXPECT_TRUE(same(static_cast<double>(call.factors[i]), static_cast<double>(factors[i])))
        << what << " " << core::kFactorNames[i] << ": " << call.factors[i] << ", not "
        << factors[i];
  }
}

using Values = std::vector<std::vector<double>>;

inline Values values_of(const GradientList& list) {
  Values values;
  for (const Gradient& gradient : list) {
    values.push_back(gradient.values());
  }
  return values;
}

/// Checks that the list holds the products of `before`, and counts those that became inf or NaN.
inline std::int64_t expect_products(const GradientList& list, const Values& before, float factor,
                                    double limit, const std::string& what) {
  std::int64_t overflows = 0;
  for (std::size_t t = 0; t < list.size(); ++t) {
    for (std::int64_t i = 0; i < list[t].elements(); ++i) {
      const double value = before[t][static_cast<std::size_t>(i)];
      const double expected = stored_product(value, factor, limit, list[t].dtype());
      const double found = list[t].get(i);
      if (!same(found, expected)) {
        ADD_FAILURE() << what << " tensor " << t << " element " << i << ": " << value << " * "
                      << factor << " is " << expected << ", stored was " << found;
        return -1;
      }
      overflows += std::isfinite(value) && !std::isfinite(expected) ? 1 : 0;
    }
  }
  return overflows;
}

inline std::string describe(core::DataType dtype, int offset, Data data, std::uint64_t seed) {
  return "dtype " + std::to_string(dtype) + " offset " + std::to_string(offset) + " data " +
         std::to_string(static_cast<int>(data)) + " seed " + std::to_string(seed);
}

/// Calls `test(dtype, offset)` for every dtype at every alignment that it allows.
template <typename Test>
void for_each_alignment(Test test) {
  for (const core::DataType dtype : kAllDtypes) {
    for (int offset = 0; offset < 16; offset = offset == 0 ? 2 : 2 * offset) {
      if (offset % core::element_bytes(dtype) == 0) {
        test(dtype, offset);
      }
    }
  }
}

}  // namespace ampscaler::cuda::test
