// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// What scales, divisors and limits make of gradients, at the edges of float.

#include "core/clip.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace ampscaler::core {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

GradScaling scaling_of(double scale, double divisor = 1.0, double user_scale = 1.0) {
  return {scale, divisor, user_scale};
}

TEST(InverseScale, IsTorchsForEveryScale) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const auto scale = __builtin_bit_cast(float, static_cast<std::uint32_t>(random()));
    const auto expected = static_cast<float>(1.0 / static_cast<double>(scale));
    const float actual = inverse_scale(scaling_of(scale));
    ASSERT_TRUE(actual == expected || (std::isnan(actual) && std::isnan(expected))) << scale;
  }
  EXPECT_EQ(inverse_scale(scaling_of(65536.0)), 0x1p-16F);
  EXPECT_EQ(inverse_scale(scaling_of(0.5)), 2.0F);
  EXPECT_EQ(inverse_scale(scaling_of(-4.0)), -0.25F);
  EXPECT_EQ(inverse_scale(scaling_of(0.0)), std::numeric_limits<float>::infinity());
}

TEST(InverseScale, DividesByTheDivisorInTheSameRounding) {
  EXPECT_EQ(inverse_scale(scaling_of(8.0, 4.0)), 1.0F / 32.0F);
  EXPECT_EQ(inverse_scale(scaling_of(3.0, 7.0)), static_cast<float>(1.0 / 21.0));
  EXPECT_EQ(inverse_scale(scaling_of(8.0, 4.0, 1000.0)), 1.0F / 32.0F);  // not the user's factor
}

TEST(InvalidDivisor, CountsAsOneAndIsNotUsable) {
  for (const double divisor : {0.0, -0.0, -2.0, kInfinity, -kInfinity, kNan}) {
    const GradScaling scaling = scaling_of(8.0, divisor, 2.0);
    EXPECT_EQ(inverse_scale(scaling), 0.125F) << divisor;
    EXPECT_EQ(norm_factor(scaling), 1.0 / 16.0) << divisor;
    EXPECT_EQ(effective_grad_scale(scaling, 0.5), 32.0F) << divisor;
    EXPECT_FALSE(is_usable(scaling)) << divisor;
  }
  EXPECT_TRUE(is_usable(scaling_of(8.0, 3.5)));
}

TEST(NormFactor, IsOfMagnitudesAndNotRoundedToFloat) {
  EXPECT_EQ(norm_factor(scaling_of(3.0)), 1.0 / 3.0);
  EXPECT_EQ(norm_factor(scaling_of(-4.0, 2.0, -8.0)), 1.0 / 64.0);
  EXPECT_EQ(norm_factor(scaling_of(4.0, 2.0, 8.0)), 1.0 / 64.0);
}

TEST(Scaling, IsUsableWhereItsFactorsAreFloats) {
  for (const double good : {1.0, -1.0, 65536.0, 0x1p127, 3.4e38, 0x1p-127, 1e-30, -3.0}) {
    EXPECT_TRUE(is_usable(scaling_of(good))) << good;
  }
  // The inverse of 2^-149 is inf in float.
  for (const double bad : {0.0, -0.0, kInfinity, -kInfinity, kNan, 0x1p-149}) {
    EXPECT_FALSE(is_usable(scaling_of(bad))) << bad;
  }
  for (const double good : {1.0, -1.0, 1e30, -1e-30}) {
    EXPECT_TRUE(is_usable(scaling_of(1.0, 1.0, good))) << good;
  }
  for (const double bad : {0.0, -0.0, kInfinity, -kInfinity, kNan, 1e39, 1e-46, 0x1p-138}) {
    EXPECT_FALSE(is_usable(scaling_of(1.0, 1.0, bad))) << bad;
  }
}

TEST(Scaling, IsJudgedByTheProductOfScaleAndDivisor) {
  EXPECT_FALSE(is_usable(scaling_of(0x1p120, 0x1p40)));
  EXPECT_FALSE(is_usable(scaling_of(0x1p-120, 0x1p-40)));
  EXPECT_TRUE(is_usable(scaling_of(0x1p120, 0x1p-40)));
  EXPECT_FALSE(is_usable(scaling_of(0x1p120, 1e308)));
}

TEST(Factor, IsUsableWhileRoundingLeavesItTwelveBits) {
  for (const float good : {1.0F, -1.0F, FLT_MAX, -FLT_MAX, FLT_MIN, 0x1p-127F, 0x1p-137F}) {
    EXPECT_TRUE(is_usable(good)) << good;
  }
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {0.0F, -0.0F, infinity, -infinity, std::nanf(""), 0x1p-138F, -0x1p-149F}) {
    EXPECT_FALSE(is_usable(bad)) << bad;
  }
}

TEST(ClipCoefficient, IsOneUpToTheLimitAndTheQuotientAbove) {
  EXPECT_EQ(clip_coefficient(0.0, {1.0}), 1.0);
  EXPECT_EQ(clip_coefficient(1.0, {1.0}), 1.0);
  EXPECT_EQ(clip_coefficient(1.0, {1.0, 1e-6}), 1.0);  // where torch has 1 / (1 + 1e-6)
  EXPECT_EQ(clip_coefficient(4.0, {1.0}), 0.25);
  EXPECT_EQ(clip_coefficient(4.0, {1.0, 1.0}), 0.2);
  EXPECT_EQ(clip_coefficient(5.0, {1.0, 1e-6}), 1.0 / (5.0 + 1e-6));
  const double above = std::nextafter(1.0, 2.0);
  EXPECT_EQ(clip_coefficient(above, {1.0}), 1.0 / above);
}

// torch adds 1e-6 always, and so shrinks small gradients twelvefold instead of by half.
TEST(ClipCoefficient, OfSmallNormsIsNotSpoiltByEps) {
  EXPECT_EQ(clip_coefficient(2e-7, {1e-7}), 0.5);
  EXPECT_NEAR(clip_coefficient(2e-7, {1e-7, 1e-6}), 1.0 / 12.0, 1e-9);
}

TEST(ClipCoefficient, NeverExceedsOneNorLeavesANormAboveTheLimit) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(-60.0, 60.0);
  for (int i = 0; i < 50000; ++i) {
    const double norm = std::exp2(exponent(random));
    const double limit = std::exp2(exponent(random));
    const double coefficient = clip_coefficient(norm, {limit});
    ASSERT_TRUE(coefficient > 0.0 && coefficient <= 1.0);
    ASSERT_LE(norm * coefficient, std::max(norm <= limit ? norm : limit, 0.0) * (1.0 + 0x1p-52));
  }
}

TEST(ClipCoefficient, WithoutALimitIsOne) {
  for (const double limit : {kInfinity, kNan, 0.0, -0.0, -1.0, -kInfinity}) {
    for (const double norm : {0.0, 1.0, 1e300, kInfinity, kNan}) {
      EXPECT_EQ(clip_coefficient(norm, {limit}), 1.0) << limit << " " << norm;
    }
  }
}

TEST(ClipCoefficient, OfAnInfiniteNormIsZeroWhichIsNotUsable) {
  EXPECT_EQ(clip_coefficient(kInfinity, {1.0}), 0.0);
  EXPECT_EQ(clip_coefficient(kNan, {1.0}), 1.0);
}

TEST(EffectiveGradScale, IsOneProductRoundedOnce) {
  EXPECT_EQ(effective_grad_scale(scaling_of(65536.0), 1.0), 65536.0F);
  EXPECT_EQ(effective_grad_scale(scaling_of(8.0, 4.0, 3.0), 0.5), 192.0F);
  EXPECT_EQ(effective_grad_scale(scaling_of(-8.0), 1.0), -8.0F);
  EXPECT_EQ(effective_grad_scale(scaling_of(3.0, 7.0, 11.0), 0.3),
            static_cast<float>(3.0 * 7.0 * 11.0 / 0.3));
  EXPECT_FALSE(is_usable(effective_grad_scale(scaling_of(0x1p100), 0x1p-28)));
}

// In float 2^100 * 2^100 would be inf, although the result is not.
TEST(EffectiveGradScale, DoesNotOverflowOnTheWay) {
  EXPECT_EQ(effective_grad_scale(scaling_of(0x1p100, 0x1p-100, 0x1p100), 1.0), 0x1p100F);
}

}  // namespace
}  // namespace ampscaler::core
