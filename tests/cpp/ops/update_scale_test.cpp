// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// `update_scale_` and the scale rule against torch's own operator: a million random inputs, version
// counters, error texts.

#include <bit>
#include <random>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/ops.h>

#include "core/scale_rule.h"
#include "cpp/error_text.h"

namespace ampscaler {
namespace {

struct Case {
  float scale;
  std::int32_t tracker;
  float found_inf;
  core::ScaleRule rule;
};

// Half of the scales and flags are arbitrary bit patterns, NaN and infinity included; trackers are
// near the interval.
class RandomCases {
 public:
  explicit RandomCases(std::uint64_t seed) : generator_(seed) {}

  Case next() {
    const auto interval = static_cast<std::int64_t>(pick(6)) - 1;
    const auto tracker = static_cast<std::int32_t>(
        pick(8) == 0 ? generator_() : static_cast<std::uint64_t>(interval) - 2 + pick(4));
    return {pick(2) ? bits() : std::ldexp(1.0F, static_cast<int>(pick(255)) - 127),
            tracker,
            pick(2) ? 0.0F : bits(),
            {factor(1.0, 4.0), factor(-1.0, 1.0), interval}};
  }

 private:
  std::uint64_t pick(std::uint64_t n) { return generator_() % n; }
  float bits() { return std::bit_cast<float>(static_cast<std::uint32_t>(generator_())); }
  double factor(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(generator_);
  }

  std::mt19937_64 generator_;
};

TEST(UpdateScale, TheRuleMatchesAtenOnAMillionRandomInputs) {
  constexpr std::uint64_t kSeed = 20;
  RandomCases cases(kSeed);
  at::Tensor scale = at::zeros({});
  at::Tensor tracker = at::zeros({}, at::kInt);
  const at::Tensor found_inf = at::zeros({});
  auto& scale_value = *scale.mutable_data_ptr<float>();
  auto& tracker_value = *tracker.mutable_data_ptr<std::int32_t>();
  for (int i = 0; i < 1'000'000; ++i) {
    const Case c = cases.next();
    scale_value = c.scale;
    tracker_value = c.tracker;
    *found_inf.mutable_data_ptr<float>() = c.found_inf;
    at::_amp_update_scale_(scale, tracker, found_inf, c.rule.growth_factor, c.rule.backoff_factor,
                           c.rule.growth_interval);
    const core::ScaleState next = core::advance_scale({c.scale, c.tracker}, c.rule, c.found_inf);
    ASSERT_EQ(next.growth_tracker, tracker_value) << "seed " << kSeed << ", case " << i;
    const bool both_nan = std::isnan(next.scale) && std::isnan(scale_value);
    ASSERT_TRUE(both_nan || std::bit_cast<std::uint32_t>(next.scale) ==
                                std::bit_cast<std::uint32_t>(scale_value))
        << "seed " << kSeed << ", case " << i << ": " << next.scale << " and " << scale_value;
  }
}

TEST(UpdateScale, TheOperatorAppliesTheRuleInPlace) {
  const at::Tensor scale = at::full({}, 8.0F);
  const at::Tensor tracker = at::full({}, 2, at::kInt);
  const void* address = scale.const_data_ptr();
  ops::update_scale_(scale, tracker, at::zeros({}), 2.0, 0.5, 3);
  EXPECT_EQ(scale.item<float>(), 16.0F);
  EXPECT_EQ(tracker.item<int>(), 0);
  ops::update_scale_(scale, tracker, at::ones({}), 2.0, 0.25, 3);
  EXPECT_EQ(scale.item<float>(), 4.0F);
  EXPECT_EQ(scale.const_data_ptr(), address);
}

TEST(UpdateScale, OnlyTheVersionOfTheScaleIsBumped) {
  const at::Tensor scale = at::ones({});
  const at::Tensor tracker = at::zeros({}, at::kInt);
  const at::Tensor found_inf = at::zeros({});
  const auto scale_version = scale._version();
  const auto other_versions = std::pair(tracker._version(), found_inf._version());
  ops::update_scale_(scale, tracker, found_inf, 2.0, 0.5, 2000);
  EXPECT_EQ(scale._version(), scale_version + 1);
  EXPECT_EQ(std::pair(tracker._version(), found_inf._version()), other_versions);
}

void expect_same_error(at::Tensor scale, at::Tensor tracker, const at::Tensor& found_inf,
                       const std::string& text) {
  const auto ours =
      error_text([&] { ops::update_scale_(scale, tracker, found_inf, 2.0, 0.5, 2000); });
  EXPECT_EQ(ours,
            error_text([&] { at::_amp_update_scale_(scale, tracker, found_inf, 2.0, 0.5, 2000); }));
  EXPECT_EQ(ours, text);
}

TEST(UpdateScaleErrors, ArgumentsAreCheckedInAtensOrder) {
  const at::Tensor two = at::zeros({2}, at::kDouble);
  const at::Tensor one = at::zeros({}, at::kDouble);
  const at::Tensor tracker = at::zeros({}, at::kInt);
  expect_same_error(two, two, two, "growth_tracker must be a 1-element tensor.");
  expect_same_error(two, one, two, "current_scale must be a 1-element tensor.");
  expect_same_error(one, one, two, "found_inf must be a 1-element tensor.");
  expect_same_error(one, one, one, "growth_tracker must be an int tensor.");
  expect_same_error(one, tracker, one, "current_scale must be a float tensor.");
  expect_same_error(at::zeros({}), tracker, one, "found_inf must be a float tensor.");
}

TEST(UpdateScaleErrors, ALeafThatRequiresGradIsRefused) {
  const at::Tensor scale = at::ones({}).requires_grad_();
  expect_same_error(scale, at::zeros({}, at::kInt), at::zeros({}),
                    "a leaf Variable that requires grad is being used in an in-place operation.");
  EXPECT_EQ(scale.item<float>(), 1.0F);
}

TEST(UpdateScaleErrors, AnInferenceTensorIsRefusedOutsideInferenceMode) {
  at::Tensor scale;
  {
    const c10::InferenceMode inference;
    scale = at::ones({});
  }
  const at::Tensor tracker = at::full({}, 5, at::kInt);
  const auto text =
      error_text([&] { ops::update_scale_(scale, tracker, at::ones({}), 2.0, 0.5, 2000); });
  EXPECT_EQ(
      text.rfind("Inplace update to inference tensor outside InferenceMode is not allowed.", 0), 0U)
      << text;
  EXPECT_EQ(scale.item<float>(), 1.0F);
  EXPECT_EQ(tracker.item<int>(), 5);
}

}  // namespace
}  // namespace ampscaler
