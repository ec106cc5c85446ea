// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The numbers of a policy: which limits are accepted, and the list that the operator takes.

#include "core/policy.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace ampscaler::core {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(ScaleLimit, IsANormalFloatWhoseInverseIsOneToo) {
  for (const double value : {0x1p-126, 0x1p-10, 1.0, 3.0, 0x1p24, 0x1p126}) {
    EXPECT_EQ(check_scale_limit("min_scale", value), "") << value;
  }
  for (const double value : {0.0, -1.0, 0x1p-127, 0x1.1p126, 0x1p127, kInfinity, kNan}) {
    EXPECT_NE(check_scale_limit("min_scale", value), "") << value;
  }
  EXPECT_EQ(check_scale_limit("max_scale", 0.0),
            "ScalePolicy: max_scale: expected a value in [2^-126, 2^126], got 0");
}

TEST(ScaleLimit, TheFloorIsAtMostTheCap) {
  EXPECT_EQ(check_scale_limits(2.0, 2.0), "");
  EXPECT_EQ(check_scale_limits(2.0, std::nullopt), "");
  EXPECT_EQ(check_scale_limits(std::nullopt, 2.0), "");
  EXPECT_EQ(check_scale_limits(4.0, 2.0),
            "ScalePolicy: min_scale: expected at most max_scale = 2, got 4");
}

TEST(PackedPolicy, ComesBackAsItWas) {
  const PackedPolicy packed = pack_policy({2.0, 0.5, 2000}, {1.0F, 0x1p24F});
  EXPECT_EQ(packed, (PackedPolicy{2.0, 0.5, 2000.0, 1.0, 0x1p24}));
  EXPECT_EQ(check_packed_policy(packed.data(), packed.size()), "");
  EXPECT_EQ(unpack_rule(packed.data()).growth_factor, 2.0);
  EXPECT_EQ(unpack_rule(packed.data()).backoff_factor, 0.5);
  EXPECT_EQ(unpack_rule(packed.data()).growth_interval, 2000);
  EXPECT_EQ(unpack_limits(packed.data()).min_scale, 1.0F);
  EXPECT_EQ(unpack_limits(packed.data()).max_scale, 0x1p24F);
}

TEST(PackedPolicy, AnIntervalOfAnySizeIsPackedAsOneThatIsNeverReached) {
  for (const std::int64_t interval : {kMost, -kMost, kLargestPackedInterval + 1}) {
    const PackedPolicy packed = pack_policy({2.0, 0.5, interval}, {});
    EXPECT_EQ(check_packed_policy(packed.data(), packed.size()), "") << interval;
    EXPECT_GT(std::abs(packed[kGrowthInterval]), 0x1p32) << interval;
  }
}

TEST(PackedPolicy, AWrongListIsRefused) {
  const auto complaint = [](std::vector<double> values) {
    return check_packed_policy(values.data(), values.size());
  };
  EXPECT_EQ(complaint({2.0, 0.5}),
            "expected 5 values (growth_factor, backoff_factor, growth_interval, min_scale, "
            "max_scale), got 2");
  EXPECT_EQ(complaint({2.0, 0.5, 1.5, 1.0, 2.0}),
            "growth_interval: expected an integer in [-2^53, 2^53], got 1.5");
  EXPECT_NE(complaint({2.0, 0.5, kNan, 1.0, 2.0}), "");
  EXPECT_NE(complaint({2.0, 0.5, kInfinity, 1.0, 2.0}), "");
  EXPECT_EQ(complaint({2.0, 0.5, 1.0, 4.0, 2.0}),
            "min_scale: expected at most max_scale = 2, got 4");
  EXPECT_EQ(complaint({2.0, 0.5, 1.0, 1.0, 1e300}),
            "min_scale, max_scale: expected float32 values, got 1 and 1e+300");
  EXPECT_NE(complaint({2.0, 0.5, 1.0, kNan, 2.0}), "");
  EXPECT_NE(complaint({2.0, 0.5, 1.0, 1.0, kNan}), "");
}

}  // namespace
}  // namespace ampscaler::core
