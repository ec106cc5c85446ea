// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// `advance_scale_` against torch's own operators: its rule without limits is torch's update, and with
// limits torch's update and clamp.

#include "ops/advance_scale.h"

#include <bit>
#include <random>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/ops.h>

#include "core/policy.h"
#include "cpp/error_text.h"

namespace ampscaler {
namespace {

struct Scalars {
  at::Tensor scale;
  at::Tensor growth_tracker;
};

Scalars make_scalars(float scale, int tracker) {
  return {at::full({}, scale), at::full({}, tracker, at::kInt)};
}

void expect_same(const Scalars& actual, const Scalars& expected, std::uint32_t seed) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(actual.scale.item<float>()),
            std::bit_cast<std::uint32_t>(expected.scale.item<float>()))
      << "seed " << seed;
  EXPECT_EQ(actual.growth_tracker.item<int>(), expected.growth_tracker.item<int>())
      << "seed " << seed;
}

TEST(AdvanceScale, WithoutLimitsItIsTorchsUpdate) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 generator(seed);
    const float scale = std::ldexp(1.0F, static_cast<int>(generator() % 270) - 140);
    const int tracker = static_cast<int>(generator() % 4);
    const at::Tensor found_inf = at::full({}, static_cast<float>(generator() % 2));
    const Scalars ours = make_scalars(scale, tracker);
    Scalars torchs = make_scalars(scale, tracker);
    ops::advance_scale_(ours.scale, ours.growth_tracker, found_inf, 2.3, 0.7, 3, ScalePolicy());
    at::_amp_update_scale_(torchs.scale, torchs.growth_tracker, found_inf, 2.3, 0.7, 3);
    expect_same(ours, torchs, seed);
  }
}

TEST(AdvanceScale, WithLimitsItIsTorchsUpdateAndClamp) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 generator(seed);
    const float scale = std::ldexp(1.0F, static_cast<int>(generator() % 40) - 20);
    const int tracker = static_cast<int>(generator() % 4);
    const at::Tensor found_inf = at::full({}, static_cast<float>(generator() % 2));
    const Scalars ours = make_scalars(scale, tracker);
    const Scalars composed = make_scalars(scale, tracker);
    Scalars torchs = make_scalars(scale, tracker);
    const ScalePolicy policy = ScalePolicy().min_scale(0.1).max_scale(1000.5);
    ops::advance_scale_(ours.scale, ours.growth_tracker, found_inf, 2.0, 0.5, 3, policy);
    const core::PackedPolicy packed = core::pack_policy({2.0, 0.5, 3}, {0.1F, 1000.5F});
    ops::advance_scale_by_torch(composed.scale, composed.growth_tracker, found_inf, packed);
    at::_amp_update_scale_(torchs.scale, torchs.growth_tracker, found_inf, 2.0, 0.5, 3);
    torchs.scale.clamp_(0.1, 1000.5);
    expect_same(ours, torchs, seed);
    expect_same(composed, torchs, seed);
  }
}

TEST(AdvanceScale, OnlyTheVersionOfTheScaleIsBumped) {
  const Scalars scalars = make_scalars(8.0F, 0);
  const at::Tensor found_inf = at::zeros({});
  const auto scale_version = scalars.scale._version();
  const auto others = std::pair(scalars.growth_tracker._version(), found_inf._version());
  ops::advance_scale_(scalars.scale, scalars.growth_tracker, found_inf, 2.0, 0.5, 2000,
                      ScalePolicy().max_scale(4));
  EXPECT_EQ(scalars.scale._version(), scale_version + 1);
  EXPECT_EQ(std::pair(scalars.growth_tracker._version(), found_inf._version()), others);
  EXPECT_EQ(scalars.scale.item<float>(), 4.0F);
}

TEST(AdvanceScaleErrors, TensorsAreRefusedInTheWordsOfTheUpdate) {
  const Scalars scalars = make_scalars(8.0F, 1);
  EXPECT_EQ(error_text([&] {
              ops::advance_scale_(scalars.scale, scalars.scale, at::ones({}), 2.0, 0.5, 3, {});
            }),
            "growth_tracker must be an int tensor.");
  EXPECT_EQ(error_text([&] {
              ops::advance_scale_(scalars.scale, scalars.growth_tracker, at::ones({2}), 2.0, 0.5, 3,
                                  {});
            }),
            "found_inf must be a 1-element tensor.");
  EXPECT_EQ(scalars.scale.item<float>(), 8.0F);
  EXPECT_EQ(scalars.growth_tracker.item<int>(), 1);
}

}  // namespace
}  // namespace ampscaler
