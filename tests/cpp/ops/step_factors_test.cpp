// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// `step_factors` and `merge_stats` on the CPU: factors by hand, merged statistics against those of one
// list.

#include <gtest/gtest.h>

#include "cpp/ops/gradients.h"

namespace ampscaler {
namespace {

struct Scalars {
  float found_inf;
  float grad_scale;
};

Scalars step_scalars(double found_inf, const std::optional<at::Tensor>& scale,
                     const std::optional<at::Tensor>& divisor = {},
                     const std::optional<at::Tensor>& user_scale = {},
                     const std::optional<at::Tensor>& clip_coefficient = {}) {
  const at::Tensor result =
      ops::step_factors(scalar(found_inf), scale, divisor, user_scale, clip_coefficient);
  EXPECT_EQ(result.scalar_type(), at::kFloat);
  EXPECT_EQ(result.numel(), 2);
  return {result.const_data_ptr<float>()[0], result.const_data_ptr<float>()[1]};
}

TEST(StepFactors, TheProductIsFormedInDoubleAndRoundedOnce) {
  EXPECT_EQ(step_scalars(0.0, std::nullopt).grad_scale, 1.0F);
  EXPECT_EQ(step_scalars(0.0, scalar(65536.0)).grad_scale, 65536.0F);
  EXPECT_EQ(step_scalars(0.0, scalar(8.0), at::full({}, 3, at::kInt), scalar(0.5)).grad_scale,
            12.0F);
  const double scale = static_cast<float>(72089.6);
  const double coefficient = 0.1234567891234567;
  const double users = static_cast<float>(0.1);  // rounded as torch rounds it
  const Scalars all =
      step_scalars(0.0, scalar(scale), at::full({}, 7.0, at::kDouble),
                   at::full({}, 0.1, at::kDouble), at::full({}, coefficient, at::kDouble));
  EXPECT_EQ(all.grad_scale, static_cast<float>(users * scale * 7.0 / coefficient));
  EXPECT_EQ(all.found_inf, 0.0F);
}

TEST(StepFactors, TheFlagIsExactlyOneForAnyFlagButZero) {
  for (const double found_inf : {1.0, 2.0, -1.0, 1e-40, kInfinity, kNan}) {
    const Scalars result = step_scalars(found_inf, scalar(4.0), {}, {}, scalar(0.5));
    EXPECT_EQ(result.found_inf, 1.0F) << found_inf;
    EXPECT_EQ(result.grad_scale, 4.0F) << "without the clip";
  }
  EXPECT_EQ(step_scalars(-0.0, scalar(4.0)).found_inf, 0.0F);
}

TEST(StepFactors, WhatIsNotUsableSetsTheFlagAndStaysFinite) {
  const auto expect_flag = [](const Scalars& result) {
    EXPECT_EQ(result.found_inf, 1.0F);
    EXPECT_TRUE(std::isfinite(result.grad_scale));
    EXPECT_NE(result.grad_scale, 0.0F);
  };
  for (const double bad : {0.0, kInfinity, -kInfinity, kNan}) {
    expect_flag(step_scalars(0.0, scalar(bad)));
    expect_flag(step_scalars(0.0, scalar(2.0), scalar(bad)));
    expect_flag(step_scalars(0.0, scalar(2.0), {}, scalar(bad)));
    expect_flag(step_scalars(0.0, scalar(2.0), {}, {}, scalar(bad)));
  }
  expect_flag(step_scalars(0.0, scalar(2.0), scalar(-1.0)));
  expect_flag(step_scalars(0.0, scalar(2.0), {}, {}, scalar(-0.5)));
  expect_flag(step_scalars(0.0, scalar(1e30), {}, {}, scalar(1e-20)));  // leaves float's range
  EXPECT_EQ(step_scalars(0.0, scalar(-2.0)).grad_scale, -2.0F);
}

ops::GradStats merged(const std::vector<Gradients>& lists, const ops::GradStatsOptions& options,
                      double scale) {
  std::vector<at::Tensor> stats;
  for (const Gradients& grads : lists) {
    stats.push_back(ops::grad_stats(grads, scalar(scale), options).stats);
  }
  return ops::merge_stats(stats, options);
}

TEST(MergeStats, AsIfTheListsHadBeenOne) {
  const Gradients all = mixed_gradients(81);
  const std::vector<Gradients> lists{{all.begin(), all.begin() + 7},
                                     {},
                                     {all.begin() + 7, all.begin() + 8},
                                     {all.begin() + 8, all.end()}};
  for (const double norm_type : {2.0, kInfinity, 1.0, 3.0, 0.0}) {
    ops::GradStatsOptions options;
    options.norm_type = norm_type;
    options.max_norm = 1.0;
    options.eps = 1e-6;
    const ops::GradStats expected = ops::grad_stats(all, scalar(3.0), options);
    const ops::GradStats result = merged(lists, options, 3.0);
    const double norm = stat(expected, core::kNorm);
    const double coefficient = stat(expected, core::kClipCoefficient);
    EXPECT_NEAR(stat(result, core::kNorm), norm, norm * 1e-15) << norm_type;
    EXPECT_NEAR(stat(result, core::kClipCoefficient), coefficient, coefficient * 1e-15);
    EXPECT_EQ(factor(result, core::kRoundedNorm), static_cast<float>(stat(result, core::kNorm)));
    EXPECT_EQ(factor(result, core::kRoundedClip),
              static_cast<float>(stat(result, core::kClipCoefficient)));
    EXPECT_EQ(factor(result, core::kFoundInf), 0.0F);
    for (const auto slot : {core::kMaxAbs, core::kZeros, core::kUnderflows, core::kElements}) {
      EXPECT_EQ(stat(result, slot), stat(expected, slot)) << core::kStatsNames[slot];
    }
  }
}

TEST(MergeStats, OneListKeepsItsBits) {
  const Gradients grads = mixed_gradients(82);
  for (const double norm_type : {2.0, kInfinity, 1.7, 0.0}) {
    ops::GradStatsOptions options;
    options.norm_type = norm_type;
    const ops::GradStats expected = ops::grad_stats(grads, scalar(3.0), options);
    EXPECT_TRUE(same_bits(merged({grads}, options, 3.0).stats, expected.stats)) << norm_type;
  }
}

TEST(MergeStats, NoNormIsTooLargeOrTooSmall) {
  const Gradients huge{at::full({1}, 1e300, at::kDouble)};
  const Gradients tiny{at::full({1}, 1e-300, at::kDouble)};
  EXPECT_NEAR(stat(merged({huge, huge}, {}, 1.0), core::kNorm), std::sqrt(2.0) * 1e300, 1e285);
  EXPECT_NEAR(stat(merged({tiny, tiny}, {}, 1.0), core::kNorm), std::sqrt(2.0) * 1e-300, 1e-315);
  EXPECT_EQ(stat(merged({{}, {}}, {}, 1.0), core::kNorm), 0.0);
}

TEST(MergeStats, NonfinitePartsShow) {
  const Gradients fine{at::ones({3})};
  const Gradients inf{at::full({2}, kInfinity)};
  const Gradients nan{at::full({1}, kNan)};
  ops::GradStatsOptions options;
  options.max_norm = 0.1;
  const ops::GradStats with_inf = merged({fine, inf}, options, 2.0);
  EXPECT_EQ(stat(with_inf, core::kNorm), kInfinity);
  EXPECT_EQ(stat(with_inf, core::kMaxAbs), kInfinity);
  EXPECT_EQ(stat(with_inf, core::kInfs), 2.0);
  EXPECT_EQ(stat(with_inf, core::kClipCoefficient), 1.0);
  EXPECT_EQ(factor(with_inf, core::kFoundInf), 1.0F);
  for (const auto& lists :
       {std::vector<Gradients>{nan, inf, fine}, {inf, fine, nan}, {fine, nan}}) {
    const ops::GradStats result = merged(lists, options, 2.0);
    EXPECT_TRUE(std::isnan(stat(result, core::kNorm)));
    EXPECT_TRUE(std::isnan(stat(result, core::kMaxAbs)));
    EXPECT_EQ(factor(result, core::kFoundInf), 1.0F);
  }
  EXPECT_THROW(ops::merge_stats({}, options), c10::ValueError);
}

TEST(MergeStats, AnOverflowByUnscalingShows) {
  const at::Tensor half = at::full({1}, 60000.0, at::kHalf);
  const at::Tensor stats = ops::unscale_with_stats_({half}, scalar(0.25)).stats;
  EXPECT_EQ(factor(ops::merge_stats({stats}), core::kFoundInf), 1.0F);
}

}  // namespace
}  // namespace ampscaler
