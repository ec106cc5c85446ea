// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Which numbers a scaler accepts, and what it says about the others.

#include "core/numeric_options.h"

#include <gtest/gtest.h>

namespace ampscaler::core {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(NumericOptions, ScaleIsAPositiveFiniteFloat) {
  for (const double good : {1.0, 1e-45, 3.4e38, 0.5}) {
    EXPECT_EQ(check_scale("init_scale", good), "") << good;
  }
  for (const double bad : {0.0, -1.0, kInfinity, -kInfinity, kNan, 1e39, 1e-46}) {
    EXPECT_NE(check_scale("init_scale", bad), "") << bad;
  }
  EXPECT_EQ(check_scale("init_scale", -2.0),
            "AmpScaler: init_scale: expected a positive finite float32 value, got -2");
}

TEST(NumericOptions, GrowthFactor) {
  EXPECT_EQ(check_growth_factor(1.0001), "");
  for (const double bad : {1.0, 0.5, 0.0, -2.0, -kInfinity}) {
    EXPECT_EQ(check_growth_factor(bad), "The growth factor must be > 1.0.") << bad;
  }
  EXPECT_EQ(check_growth_factor(kInfinity),
            "AmpScaler: growth_factor: expected a finite value > 1, got inf");
  EXPECT_EQ(check_growth_factor(kNan),
            "AmpScaler: growth_factor: expected a finite value > 1, got nan");
}

TEST(NumericOptions, BackoffFactor) {
  EXPECT_EQ(check_backoff_factor(0.999), "");
  for (const double bad : {1.0, 2.0, kInfinity}) {
    EXPECT_EQ(check_backoff_factor(bad), "The backoff factor must be < 1.0.") << bad;
  }
  EXPECT_EQ(check_backoff_factor(0.0),
            "AmpScaler: backoff_factor: expected a value in (0, 1), got 0");
  EXPECT_EQ(check_backoff_factor(-0.5),
            "AmpScaler: backoff_factor: expected a value in (0, 1), got -0.5");
  EXPECT_EQ(check_backoff_factor(kNan),
            "AmpScaler: backoff_factor: expected a value in (0, 1), got nan");
}

TEST(NumericOptions, Integers) {
  EXPECT_EQ(check_growth_interval(1), "");
  EXPECT_EQ(check_growth_interval(std::int64_t{1} << 40), "");
  EXPECT_EQ(check_growth_interval(0),
            "AmpScaler: growth_interval: expected an integer >= 1, got 0");
  EXPECT_EQ(check_growth_tracker(0), "");
  EXPECT_EQ(check_growth_tracker((std::int64_t{1} << 31) - 1), "");
  EXPECT_NE(check_growth_tracker(std::int64_t{1} << 31), "");
  EXPECT_NE(check_growth_tracker(-1), "");
}

}  // namespace
}  // namespace ampscaler::core
