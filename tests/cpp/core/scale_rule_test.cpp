// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The scale rule: the numbers that torch's operator was observed to give. A comparison with that
// operator on random inputs is in ops/update_scale_test.cpp.

#include "core/scale_rule.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace ampscaler::core {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();  // 2^-149
constexpr std::int32_t kIntMax = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kIntMin = std::numeric_limits<std::int32_t>::min();
constexpr ScaleRule kDefault{2.0, 0.5, 2000};

ScaleState advance(float scale, std::int32_t tracker, const ScaleRule& rule, float found_inf) {
  return advance_scale({scale, tracker}, rule, found_inf);
}

TEST(ScaleRule, AnythingButZeroIsAnOverflow) {
  for (const float found_inf : {1.0F, 2.0F, -1.0F, 0.5F, kTiny, kInfinity, kNan}) {
    const ScaleState next = advance(8.0F, 5, kDefault, found_inf);
    EXPECT_EQ(next.scale, 4.0F) << found_inf;
    EXPECT_EQ(next.growth_tracker, 0) << found_inf;
  }
  EXPECT_EQ(advance(8.0F, 5, kDefault, -0.0F).growth_tracker, 6);
}

TEST(ScaleRule, GrowsWhenTheTrackerReachesTheInterval) {
  const ScaleRule rule{2.0, 0.5, 3};
  EXPECT_EQ(advance(8.0F, 1, rule, 0.0F).scale, 8.0F);
  EXPECT_EQ(advance(8.0F, 1, rule, 0.0F).growth_tracker, 2);
  EXPECT_EQ(advance(8.0F, 2, rule, 0.0F).scale, 16.0F);
  EXPECT_EQ(advance(8.0F, 2, rule, 0.0F).growth_tracker, 0);
}

TEST(ScaleRule, AnIntervalAtOrBelowTheTrackerDoesNotFire) {
  const ScaleRule rule{2.0, 0.5, 3};
  EXPECT_EQ(advance(8.0F, 3, rule, 0.0F).growth_tracker, 4);
  EXPECT_EQ(advance(8.0F, 5, rule, 0.0F).scale, 8.0F);
  EXPECT_EQ(advance(8.0F, 0, {2.0, 0.5, 0}, 0.0F).growth_tracker, 1);
  EXPECT_EQ(advance(8.0F, 0, {2.0, 0.5, -1}, 0.0F).growth_tracker, 1);
}

TEST(ScaleRule, TheIntervalIsComparedInSixtyFourBits) {
  const ScaleRule rule{2.0, 0.5, (std::int64_t{1} << 32) + 2};
  EXPECT_EQ(advance(8.0F, 1, rule, 0.0F).scale, 8.0F);
}

TEST(ScaleRule, ATrackerAtItsLargestValueWrapsAround) {
  EXPECT_EQ(advance(8.0F, kIntMax, kDefault, 0.0F).growth_tracker, kIntMin);
}

TEST(ScaleRule, GrowthBeyondFloatKeepsTheScaleAndRestartsTheCount) {
  const ScaleRule rule{2.0, 0.5, 1};
  const ScaleState next = advance(3e38F, 0, rule, 0.0F);
  EXPECT_EQ(next.scale, 3e38F);
  EXPECT_EQ(next.growth_tracker, 0);
  EXPECT_EQ(advance(8.0F, 0, {std::numeric_limits<double>::quiet_NaN(), 0.5, 1}, 0.0F).scale, 8.0F);
}

TEST(ScaleRule, BackoffIsNotClamped) {
  EXPECT_EQ(advance(kTiny, 0, kDefault, 1.0F).scale, 0.0F);
  EXPECT_EQ(advance(kTiny, 0, {2.0, 0.75, 2000}, 1.0F).scale, kTiny);
  EXPECT_EQ(advance(8.0F, 0, {2.0, -0.5, 2000}, 1.0F).scale, -4.0F);
  EXPECT_TRUE(std::isnan(advance(kNan, 0, kDefault, 1.0F).scale));
  EXPECT_EQ(advance(kInfinity, 0, kDefault, 1.0F).scale, kInfinity);
}

TEST(ScaleRule, TheDefaultScaleReachesZeroAfter166Halvings) {
  ScaleState state{65536.0F, 0};
  for (int skip = 1; skip <= 166; ++skip) {
    EXPECT_GT(state.scale, 0.0F) << skip;
    state = advance_scale(state, kDefault, 1.0F);
  }
  EXPECT_EQ(state.scale, 0.0F);
  EXPECT_EQ(advance(0.0F, 0, {2.0, 0.5, 1}, 0.0F).scale,
            0.0F);  // and growth does not bring it back
}

TEST(ScaleRule, TheProductIsRoundedOnceFromDouble) {
  // The factor 0.7 is no float: rounding it first would give another product.
  EXPECT_EQ(rescale(9.0F, 0.7), static_cast<float>(9.0 * 0.7));
  EXPECT_NE(rescale(9.0F, 0.7), 9.0F * 0.7F);
  EXPECT_EQ(advance(1.0F, 0, {1.0 + 0x1p-24, 0.5, 1}, 0.0F).scale, 1.0F);  // a tie goes to even
  EXPECT_EQ(advance(1.0F, 0, {1.0 + 0x1.8p-23, 0.5, 1}, 0.0F).scale,
            1.0F + 0x1p-22F);  // and up to even
}

ScaleState advance(float scale, std::int32_t tracker, const ScaleLimits& limits, float found_inf) {
  return advance_scale({scale, tracker}, {2.0, 0.5, 3}, limits, found_inf);
}

TEST(ScaleLimits, TheFloorHoldsAndTheCountStillRestarts) {
  const ScaleLimits limits{4.0F, kInfinity};
  EXPECT_EQ(advance(16.0F, 2, limits, 1.0F).scale, 8.0F);
  EXPECT_EQ(advance(8.0F, 2, limits, 1.0F).scale, 4.0F);
  const ScaleState floor = advance(4.0F, 2, limits, kNan);
  EXPECT_EQ(floor.scale, 4.0F);
  EXPECT_EQ(floor.growth_tracker, 0);
  EXPECT_EQ(advance(6.0F, 0, limits, 1.0F).scale, 4.0F);  // 3 is below
}

TEST(ScaleLimits, TheCapHoldsAndTheCountStillRestarts) {
  const ScaleLimits limits{-kInfinity, 24.0F};
  EXPECT_EQ(advance(8.0F, 2, limits, 0.0F).scale, 16.0F);
  const ScaleState cap = advance(16.0F, 2, limits, 0.0F);
  EXPECT_EQ(cap.scale, 24.0F);
  EXPECT_EQ(cap.growth_tracker, 0);
  EXPECT_EQ(advance(24.0F, 1, limits, 0.0F).growth_tracker, 2);
  EXPECT_EQ(advance(24.0F, 0, limits, 1.0F).scale, 12.0F);
}

TEST(ScaleLimits, AScaleThatSomeoneSetOutsideIsBroughtBack) {
  const ScaleLimits limits{1.0F, 16.0F};
  EXPECT_EQ(advance(64.0F, 0, limits, 0.0F).scale, 16.0F);
  EXPECT_EQ(advance(64.0F, 0, limits, 1.0F).scale, 16.0F);
  EXPECT_EQ(advance(0.0F, 0, limits, 0.0F).scale, 1.0F);
  EXPECT_EQ(advance(-kInfinity, 0, limits, 0.0F).scale, 1.0F);
  EXPECT_EQ(advance(kInfinity, 0, limits, 1.0F).scale, 16.0F);
  EXPECT_TRUE(std::isnan(advance(kNan, 0, limits, 0.0F).scale));
}

TEST(ScaleLimits, ByDefaultThereAreNone) {
  for (const float scale : {kInfinity, -kInfinity, 0.0F, -0.0F, kTiny, 3e38F}) {
    EXPECT_EQ(clamp_scale(scale, {}), scale);
  }
  EXPECT_TRUE(std::signbit(clamp_scale(-0.0F, {})));
  EXPECT_TRUE(std::isnan(clamp_scale(kNan, {})));
}

}  // namespace
}  // namespace ampscaler::core
