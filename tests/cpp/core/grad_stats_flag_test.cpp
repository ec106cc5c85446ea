// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The flag of finish() is set exactly when the step would be wrong: for random scalings and limits over
// the range of float, recomputed in long double.

#include <cfloat>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "core/grad_stats.h"
#include "cpp/core/grad_sums.h"

namespace ampscaler::core {
namespace {

/// Recomputed with the range of long double: could a step apply these factors to a largest element?
struct Expected {
  long double norm, coefficient, unscale_and_clip, grad_scale;

  Expected(long double stored, const GradScaling& scaling, double max_norm) {
    const long double total = static_cast<long double>(scaling.scale) * scaling.divisor;
    norm = stored / std::fabs(total * scaling.user_scale);
    coefficient = norm > max_norm ? max_norm / norm : 1.0L;
    unscale_and_clip = coefficient / total;
    grad_scale = total * scaling.user_scale / coefficient;
  }

  static bool fits(long double factor) {
    return std::fabs(factor) <= FLT_MAX && std::fabs(factor) >= 0x1p-137L;
  }
  static bool near_an_edge(long double value) {
    const long double size = std::fabs(value);
    return std::fabs(size / FLT_MAX - 1.0L) < 1e-6L || std::fabs(size / 0x1p-137L - 1.0L) < 1e-3L;
  }
  bool usable(long double largest, const GradScaling& scaling) const {
    return fits(coefficient) && fits(unscale_and_clip) && fits(grad_scale) &&
           fits(1.0L / scaling.scale / scaling.divisor) && fits(scaling.user_scale) &&
           std::fabs(largest * unscale_and_clip) <= FLT_MAX &&
           std::fabs(largest / grad_scale) <= FLT_MAX;
  }
  bool borderline(long double largest, const GradScaling& scaling) const {
    return near_an_edge(coefficient) || near_an_edge(unscale_and_clip) ||
           near_an_edge(grad_scale) || near_an_edge(scaling.user_scale) ||
           near_an_edge(1.0L / scaling.scale / scaling.divisor) ||
           near_an_edge(largest * unscale_and_clip) || near_an_edge(largest / grad_scale);
  }
};

/// One case: two equal floats of size `element`. Returns whether it was flagged.
bool expect_right(float element, const GradScaling& scaling, double max_norm) {
  const Results results = conclude(sums_of({element, -element}), scaling, {max_norm});
  const long double largest = element;
  const Expected expected(largest * std::sqrt(2.0L), scaling, max_norm);
  const bool flagged = results.factors[kFoundInf] == 1.0F;
  if (!expected.borderline(largest, scaling)) {
    EXPECT_EQ(flagged, !expected.usable(largest, scaling))
        << element << " " << scaling.scale << " " << scaling.divisor << " " << scaling.user_scale
        << " " << max_norm;
  }
  if (!flagged) {
    EXPECT_NEAR(static_cast<double>(results.stats[kNorm] / expected.norm), 1.0, 1e-14);
    EXPECT_NEAR(static_cast<double>(results.factors[kUnscaleAndClip] / expected.unscale_and_clip),
                1.0, 0x1p-12);
    EXPECT_NEAR(static_cast<double>(results.factors[kEffectiveGradScale] / expected.grad_scale),
                1.0, 0x1p-12);
    EXPECT_NEAR(static_cast<double>(results.factors[kRoundedClip] / expected.coefficient), 1.0,
                0x1p-12);
    EXPECT_TRUE(is_finite(element / results.factors[kEffectiveGradScale]));
    EXPECT_TRUE(is_finite(element * results.factors[kUnscaleAndClip]));
  } else {
    expect_flagged(results, "random");
  }
  return flagged;
}

TEST(Finish, FlagsExactlyTheStepsThatWouldBeWrong) {
  std::mt19937_64 random(2);
  const auto any = [&](double most) {  // +-2^-most to +-2^most
    const double size = std::exp2(std::uniform_real_distribution<double>(-most, most)(random));
    return random() % 4 == 0 ? -size : size;
  };
  int flagged = 0;
  constexpr int kCases = 100000;
  for (int i = 0; i < kCases && !testing::Test::HasFailure(); ++i) {
    const double spread = i % 2 == 0 ? 127.0 : 50.0;
    const GradScaling scaling{static_cast<float>(any(spread)),
                              random() % 2 == 0 ? 1.0 : std::fabs(any(spread)),
                              random() % 2 == 0 ? 1.0 : static_cast<float>(any(spread))};
    const double max_norm = random() % 3 == 0 ? kInfinity : std::fabs(any(spread));
    flagged += expect_right(static_cast<float>(std::fabs(any(127.0))), scaling, max_norm) ? 1 : 0;
  }
  EXPECT_GT(flagged, kCases / 10);
  EXPECT_LT(flagged, kCases * 9 / 10);
}

}  // namespace
}  // namespace ampscaler::core
