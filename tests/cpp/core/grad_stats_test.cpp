// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// What finish() concludes from sums: known lists and the edges of the number formats.

#include "core/grad_stats.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cpp/core/grad_sums.h"

namespace ampscaler::core {
namespace {

double norm_of(const std::vector<double>& values, const GradScaling& scaling = {},
               double norm_type = kTwo) {
  return conclude(sums_of(values, norm_type), scaling, {}, norm_type).stats[kNorm];
}

TEST(GradSums, IsWordsOf64Bits) {
  EXPECT_EQ(kGradSumsWords, kLimbs + 7);
  EXPECT_EQ(sizeof(GradSums), 8U * kGradSumsWords);
}

TEST(Finish, KnownListWithEveryKindOfScale) {
  const GradSums sums = sums_of({3.0, -4.0});
  EXPECT_EQ(conclude(sums).stats[kNorm], 5.0);
  EXPECT_EQ(conclude(sums, {2.0}).stats[kNorm], 2.5);
  EXPECT_EQ(conclude(sums, {2.0, 5.0}).stats[kNorm], 0.5);
  EXPECT_EQ(conclude(sums, {1.0, 1.0, 3.0}).stats[kNorm], 5.0 * (1.0 / 3.0));
  EXPECT_EQ(conclude(sums, {-2.0, 1.0, -2.0}).stats[kNorm], 1.25);
  const Results results = conclude(sums, {2.0, 5.0, 4.0});
  EXPECT_EQ(results.stats[kMaxAbs], 0.1);
  EXPECT_EQ(results.factors[kFoundInf], 0.0F);
  EXPECT_EQ(results.factors[kUnscaleAndClip], 0.1F);
  EXPECT_EQ(results.factors[kEffectiveGradScale], 40.0F);
}

TEST(Finish, FillsEverySlot) {
  GradSums sums = sums_of({0.0, -0.0, 1e-5, -0x1p-14, 8.0});
  sums.overflows = 3;
  sums.infs = 2;
  const Results results = conclude(sums, {2.0});
  EXPECT_EQ(results.stats[kZeros], 2.0);
  EXPECT_EQ(results.stats[kUnderflows], 1.0);
  EXPECT_EQ(results.stats[kElements], 5.0);
  EXPECT_EQ(results.stats[kInfs], 2.0);
  EXPECT_EQ(results.stats[kNans], 0.0);
  EXPECT_EQ(results.stats[kOverflows], 3.0);
  sums.infs = 0;
  sums.nans = 4;
  EXPECT_EQ(conclude(sums).stats[kNans], 4.0);
}

TEST(Finish, ClipsOnceTheLimitIsExceeded) {
  const GradSums sums = sums_of({30.0, 40.0});
  const Results within = conclude(sums, {2.0}, {25.0});
  EXPECT_EQ(within.stats[kClipCoefficient], 1.0);
  EXPECT_EQ(within.factors[kUnscaleAndClip], 0.5F);
  const Results clipped = conclude(sums, {2.0, 1.0, 5.0}, {2.5});
  EXPECT_EQ(clipped.stats[kNorm], 5.0);
  EXPECT_EQ(clipped.stats[kClipCoefficient], 0.5);
  EXPECT_EQ(clipped.factors[kRoundedClip], 0.5F);
  EXPECT_EQ(clipped.factors[kUnscaleAndClip], 0.25F);
  EXPECT_EQ(clipped.factors[kEffectiveGradScale], 20.0F);
  EXPECT_EQ(clipped.factors[kFoundInf], 0.0F);
}

// C11: the factor of the second pass is float(double(inverse) * coefficient).
TEST(Finish, MultipliesTheRoundedInverse) {
  const GradScaling scaling{3.0};
  const double coefficient = 0.07 / 10.0;
  const Results results = conclude(sums_of({30.0}), scaling, {0.07});
  const double rounded_inverse = 1.0F / 3.0F;
  ASSERT_NE(static_cast<float>(rounded_inverse * coefficient),
            static_cast<float>(1.0 / 3.0 * coefficient));
  EXPECT_EQ(results.factors[kUnscaleAndClip], static_cast<float>(rounded_inverse * coefficient));
}

TEST(Finish, HasNoFalseOverflow) {
  const std::vector<double> huge(64, 1e38);
  EXPECT_NEAR(norm_of(huge) / 8e38, 1.0, 1e-15);
  EXPECT_EQ(conclude(sums_of(huge)).factors[kFoundInf], 0.0F);
  EXPECT_NEAR(norm_of({1.7e308, 1.7e308}, {2.0}) / (1.7e308 * std::sqrt(0.5)), 1.0, 1e-15);
}

TEST(Finish, HasNoFalseZero) {
  EXPECT_EQ(norm_of({0x1p-149}), 0x1p-149);
  EXPECT_EQ(norm_of({0x1p-1074}), 0x1p-1074);
  EXPECT_EQ(norm_of({0x1p-1074}, {0x1p-100}), 0x1p-974);
  EXPECT_NEAR(norm_of({3e-200, 4e-200}) / 5e-200, 1.0, 1e-15);
  EXPECT_GT(conclude(sums_of({1e-30})).factors[kRoundedNorm], 0.0F);
}

// A float64 norm may leave float: only a limit would then lead to a wrong step.
TEST(Finish, FlagsANormBeyondFloatOnlyWithALimit) {
  const GradSums sums = sums_of({1e300});
  const Results free = conclude(sums, {65536.0});
  EXPECT_EQ(free.factors[kFoundInf], 0.0F);
  EXPECT_EQ(free.factors[kRoundedNorm], std::numeric_limits<float>::infinity());
  EXPECT_DOUBLE_EQ(free.stats[kNorm], 1e300 / 65536.0);
  EXPECT_EQ(free.factors[kEffectiveGradScale], 65536.0F);
  expect_flagged(conclude(sums, {65536.0}, {1.0}), "limit 1");
  EXPECT_EQ(conclude(sums, {65536.0}, {1e299}).factors[kFoundInf], 0.0F);
  const GradSums beyond_double = sums_of({1.7e308, 1.7e308});
  EXPECT_EQ(conclude(beyond_double).factors[kFoundInf], 0.0F);
  expect_flagged(conclude(beyond_double, {}, {1e308}), "norm inf");
}

TEST(Finish, FlagsFactorsThatLeaveFloat) {
  const GradSums sums = sums_of(std::vector<double>(64, 1e38));
  const Results results = conclude(sums, {65536.0}, {0.5});
  expect_flagged(results, "64 times 1e38");
  EXPECT_EQ(results.factors[kUnscaleAndClip], 0x1p-16F);
  EXPECT_EQ(results.factors[kEffectiveGradScale], 65536.0F);
  EXPECT_EQ(conclude(sums, {65536.0}, {4.0}).factors[kFoundInf], 0.0F);
}

// Rounded to float, the coefficient 1e-44 would be off by 40 %.
TEST(Finish, FlagsACoefficientThatFloatCannotHold) {
  const GradSums sums = sums_of({1e38});
  expect_flagged(conclude(sums, {1e-4}, {1e-2}), "coefficient 1e-44");
  EXPECT_EQ(conclude(sums, {1e-4}, {1e3}).factors[kFoundInf], 0.0F);
}

// Stored in float32, 1e30 / 1e-10 would become inf in the optimizer, which does not look again.
TEST(Finish, FlagsFloatsThatUnscalingMakesInfinite) {
  const GradSums sums = sums_of({1e30, 1.0});
  expect_flagged(conclude(sums, {1e-10}), "scale 1e-10");
  expect_flagged(conclude(sums, {1.0, 1.0, 1e-10}), "user_scale 1e-10");
  EXPECT_EQ(conclude(sums, {1e-8}).factors[kFoundInf], 0.0F);
  EXPECT_EQ(conclude(sums, {1e-10}, {1e3}).factors[kFoundInf], 0.0F);       // clipped, it fits
  EXPECT_EQ(conclude(sums_of({1e100}), {1e-10}).factors[kFoundInf], 0.0F);  // float64 anyway
}

void expect_precedence(double norm_type, int infs, int nans) {
  GradSums sums = sums_of({3.0, 4.0}, norm_type);
  sums.infs = infs;
  sums.nans = nans;
  const Results results = conclude(sums, {2.0}, {1.0}, norm_type);
  for (const StatsSlot slot : {kNorm, kMaxAbs}) {
    EXPECT_EQ(std::isnan(results.stats[slot]), nans > 0);
    EXPECT_EQ(results.stats[slot] == kInfinity, nans == 0 && infs > 0);
  }
  if (infs + nans > 0) {
    expect_flagged(results, std::to_string(norm_type));
    EXPECT_EQ(results.factors[kUnscaleAndClip], 0.5F);
  }
}

TEST(Finish, PutsNanBeforeInfBeforeNumbers) {
  for (const double norm_type : {kTwo, kInfinity, 1.0, 3.0, 0.0}) {
    expect_precedence(norm_type, 0, 0);
    expect_precedence(norm_type, 1, 0);
    expect_precedence(norm_type, 0, 2);
    expect_precedence(norm_type, 1, 2);
  }
}

TEST(Finish, FlagsAnOverflowAndKeepsTheNorm) {
  GradSums sums = sums_of({3.0, 4.0});
  sums.overflows = 1;
  const Results results = conclude(sums, {0.5}, {1.0});
  expect_flagged(results, "overflow");
  EXPECT_EQ(results.stats[kNorm], 10.0);
}

const GradScaling kUnusable[] = {
    {0.0},
    {kInfinity},
    {-kInfinity},
    {kNan},
    {0x1p-149},
    {1.0, 0.0},
    {1.0, -1.0},
    {1.0, kInfinity},
    {1.0, 1e300},
    {1.0, 1e-300},
    {1.0, kNan},
    {1.0, 1.0, 0.0},
    {1.0, 1.0, kInfinity},
    {1.0, 1.0, 1e39},
    {1.0, 1.0, kNan},
    {3e38, 1.0, 3e38},
};

TEST(Finish, FlagsEveryUnusableScaling) {
  for (const GradScaling& scaling : kUnusable) {
    const std::string what = testing::PrintToString(scaling.scale) + " " +
                             testing::PrintToString(scaling.divisor) + " " +
                             testing::PrintToString(scaling.user_scale);
    for (const std::vector<double>& values : {std::vector<double>{3.0, 4.0}, {0.0}, {kInfinity}}) {
      expect_flagged(conclude(sums_of(values), scaling), what);
      expect_flagged(conclude(sums_of(values), scaling, {1e-3}), what);
    }
    EXPECT_FALSE(norm_of({3.0, 4.0}, scaling) < 0.0) << what;
  }
}

TEST(Finish, OfNoElementsIsZeroWithAnyScaling) {
  std::vector<GradScaling> scalings(std::begin(kUnusable), std::end(kUnusable));
  scalings.push_back({1024.0});
  for (const GradScaling& scaling : scalings) {
    for (const double norm_type : {kTwo, kInfinity, 1.0, 0.0}) {
      const Results results = conclude(no_sums(), scaling, {1.0}, norm_type);
      for (const StatsSlot slot : {kNorm, kMaxAbs, kZeros, kElements}) {
        EXPECT_EQ(results.stats[slot], 0.0) << slot;
      }
      EXPECT_EQ(results.factors[kFoundInf], 0.0F);
      EXPECT_EQ(results.factors[kRoundedNorm], 0.0F);
      EXPECT_EQ(results.factors[kRoundedClip], 1.0F);
      EXPECT_TRUE(is_usable(results.factors[kUnscaleAndClip]));
      EXPECT_TRUE(is_usable(results.factors[kEffectiveGradScale]));
    }
  }
}

TEST(Finish, OtherNorms) {
  const std::vector<double> values{3.0, -4.0, 0.0};
  EXPECT_EQ(norm_of(values, {2.0}, kInfinity), 2.0);
  EXPECT_EQ(norm_of(values, {2.0}, 1.0), 3.5);
  EXPECT_DOUBLE_EQ(norm_of(values, {2.0}, 3.0), std::cbrt(91.0) / 2.0);
  EXPECT_DOUBLE_EQ(norm_of(values, {-2.0}, 0.5), (7.0 + 4.0 * std::sqrt(3.0)) / 2.0);
  EXPECT_EQ(norm_of(values, {2.0}, 0.0), 2.0);  // a count, which no scale changes
  EXPECT_EQ(norm_of({1.7e308, 1.0}, {2.0}, kInfinity), 0.85e308);
  const Results clipped = conclude(sums_of(values, kInfinity), {2.0}, {1.0}, kInfinity);
  EXPECT_EQ(clipped.stats[kClipCoefficient], 0.5);
}

// The power overflows, and no limit must take the norm for a small one.
TEST(Finish, FlagsAPowerBeyondDoubleWithALimit) {
  const GradSums sums = sums_of({1e200, 1.0}, 3.0);
  EXPECT_EQ(conclude(sums, {}, {}, 3.0).stats[kNorm], kInfinity);
  expect_flagged(conclude(sums, {}, {1e200}, 3.0), "cube of 1e200");
}

TEST(Merge, EqualsAddingEverythingToOne) {
  std::mt19937_64 random(1);
  std::vector<double> all;
  GradSums merged = no_sums();
  for (int part = 0; part < 30; ++part) {
    std::vector<double> values;
    for (std::uint64_t i = random() % 50; i > 0; --i) {
      const std::uint64_t bits = random();
      values.push_back(i % 7 == 0 ? 0.0 : __builtin_bit_cast(double, bits));
    }
    values.push_back(part % 10 == 3 ? kInfinity : part % 10 == 4 ? kNan : 1.0);
    all.insert(all.end(), values.begin(), values.end());
    GradSums more = sums_of(values);
    more.overflows = part;
    merge(merged, more);
  }
  GradSums together = sums_of(all);
  together.overflows = 29 * 30 / 2;
  normalise(merged.limbs);
  normalise(together.limbs);
  EXPECT_EQ(std::memcmp(&merged, &together, sizeof merged), 0);
  merge(merged, sums_of({1e-300}));  // the smaller maximum does not win
  EXPECT_EQ(merged.max_abs_bits, together.max_abs_bits);
}

}  // namespace
}  // namespace ampscaler::core
