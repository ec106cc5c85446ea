// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// For tests of core/grad_stats.h: the sums that a kernel would find in a list, and what finish() makes of
// them.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/grad_stats.h"

namespace ampscaler::core {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kTwo = 2.0;

inline GradSums no_sums() {
  GradSums sums;
  std::memset(&sums, 0, sizeof sums);
  return sums;
}

inline void add_power(GradSums& sums, double size, double norm_type) {
  if (norm_type == kTwo) {
    const int exponent = size > 0x1p500 ? 600 : size < 0x1p-460 ? -600 : 0;
    const double scaled = std::ldexp(size, -exponent);
    add_exactly(sums.limbs, scaled * scaled, 2 * exponent);
  } else if (norm_type < kInfinity) {
    add_exactly(sums.limbs, norm_type == 0.0 ? 1.0 : std::pow(size, norm_type));
  }
}

/// What a kernel finds in `values`. For norm type 0 each value is a tensor.
inline GradSums sums_of(const std::vector<double>& values, double norm_type = kTwo) {
  GradSums sums = no_sums();
  for (const double value : values) {
    const double size = std::fabs(value);
    ++sums.elements;
    sums.nans += std::isnan(value) ? 1 : 0;
    sums.infs += size == kInfinity ? 1 : 0;
    sums.zeros += value == 0.0 ? 1 : 0;
    sums.underflows += size > 0.0 && size < 0x1p-14 ? 1 : 0;
    if (size > 0.0 && size < kInfinity) {
      sums.max_abs_bits = std::max(sums.max_abs_bits, __builtin_bit_cast(std::int64_t, size));
      add_power(sums, size, norm_type);
    }
  }
  return sums;
}

struct Results {
  double stats[kStatsSlots];
  float factors[kFactorSlots];
};

inline Results conclude(GradSums sums, const GradScaling& scaling = {}, const ClipRule& rule = {},
                        double norm_type = kTwo) {
  Results results;
  std::fill(results.stats, results.stats + kStatsSlots, -1.0);
  std::fill(results.factors, results.factors + kFactorSlots, -1.0F);
  finish(sums, norm_type, scaling, rule, results.stats, results.factors);
  return results;
}

/// A skipped step: coefficient 1, factors that no arithmetic can turn into inf or NaN.
inline void expect_flagged(const Results& results, const std::string& what) {
  EXPECT_EQ(results.factors[kFoundInf], 1.0F) << what;
  EXPECT_EQ(results.stats[kClipCoefficient], 1.0) << what;
  EXPECT_EQ(results.factors[kRoundedClip], 1.0F) << what;
  EXPECT_TRUE(is_usable(results.factors[kUnscaleAndClip])) << what;
  EXPECT_TRUE(is_usable(results.factors[kEffectiveGradScale])) << what;
}

}  // namespace ampscaler::core
