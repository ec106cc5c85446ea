// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The CUDA backends of `step_factors` and `merge_stats`, run on the CPU, against the CPU backends: to the bit,
// whatever the arguments hold, and by one launch.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/ops.h>

#include "cpp/cuda/launch_record.h"
#include "cpp/ops/gradients.h"
#include "kernels/cuda/backends.h"

namespace ampscaler::cuda {
namespace {

using ops::OptionalTensor;

void expect_one_launch() {
  EXPECT_EQ(test::launch_record().streams, std::vector{test::current_stream()});
  test::launch_record() = {};
}

/// Not given, and numbers of several dtypes, good and bad.
std::vector<OptionalTensor> scalars() {
  return {std::nullopt,
          at::full({}, 0.3),
          at::full({1}, 3, at::kLong),
          at::full({1, 1}, -2, at::kChar),
          at::full({}, 0.1, at::kDouble),
          at::full({}, 6.5e4, at::kHalf),
          at::full({}, 1e30, at::kBFloat16),
          at::full({}, -0.0),
          at::full({}, kInfinity),
          at::full({}, kNan, at::kDouble),
          at::full({}, 1e-310, at::kDouble),
          at::full({}, 1e300, at::kDouble),
          at::full({}, 16777217, at::kLong)};  // which no float holds
}

TEST(CudaStepBackends, StepFactorsAreThoseOfTheCpu) {
  const std::vector<OptionalTensor> all = scalars();
  const auto check = [](double flag, const OptionalTensor& scale, const OptionalTensor& divisor,
                        const OptionalTensor& user_scale, const OptionalTensor& coefficient) {
    const at::Tensor found_inf = scalar(flag);
    const at::Tensor ours = step_factors(found_inf, scale, divisor, user_scale, coefficient);
    expect_one_launch();
    const at::Tensor expected =
        ops::step_factors(found_inf, scale, divisor, user_scale, coefficient);
    EXPECT_TRUE(same_bits(ours, expected)) << ours << expected;
    EXPECT_EQ(ours.scalar_type(), expected.scalar_type());
  };
  for (const double flag : {0.0, -0.0, 1.0, 1e-45, kInfinity, kNan}) {
    for (const OptionalTensor& a : all) {
      for (const OptionalTensor& b : all) {
        check(flag, a, b, std::nullopt, std::nullopt);
        check(flag, scalar(8), std::nullopt, a, b);
      }
    }
  }
}

at::Tensor random_stats(std::int64_t parts) {
  return at::rand({parts, core::kStatsSlots}, at::kDouble).mul_(10);
}

void expect_merged_as_on_the_cpu(const std::vector<at::Tensor>& stats,
                                 const ops::GradStatsOptions& options) {
  const auto [merged, factors] =
      merge_stats(stats, options.norm_type, options.max_norm, options.max_norm_tensor, options.eps);
  expect_one_launch();
  const ops::GradStats expected = ops::merge_stats(stats, options);
  EXPECT_TRUE(same_results({merged, factors}, expected)) << merged << expected.stats;
  EXPECT_FALSE(merged.requires_grad());
}

TEST(CudaStepBackends, MergedStatisticsAreThoseOfTheCpu) {
  at::manual_seed(5);
  for (const double norm_type : {2.0, kInfinity, 0.0, 1.0, 3.5}) {
    for (const std::int64_t parts : {1, 2, 5, 120, 121, 300}) {
      ops::GradStatsOptions options;
      options.norm_type = norm_type;
      const at::Tensor rows = random_stats(parts);
      expect_merged_as_on_the_cpu(rows.unbind(), options);
      options.max_norm = 0.5;
      options.eps = 1e-6;
      expect_merged_as_on_the_cpu(rows.unbind(), options);
      expect_merged_as_on_the_cpu(rows.t().contiguous().unbind(1), options);
    }
  }
}

TEST(CudaStepBackends, LimitsAndNumbersOfAnyKind) {
  at::manual_seed(6);
  for (const OptionalTensor& number : scalars()) {
    ops::GradStatsOptions options;
    options.max_norm = 2.0;
    options.max_norm_tensor = number;
    const at::Tensor rows = random_stats(3);
    expect_merged_as_on_the_cpu(rows.unbind(), options);
    options.max_norm_tensor = std::nullopt;
    const at::Tensor value = number.value_or(at::zeros({})).reshape({});
    rows[1][core::kNorm] = value;
    expect_merged_as_on_the_cpu(rows.unbind(), options);
    rows.fill_(value);
    expect_merged_as_on_the_cpu(rows.unbind(), options);
  }
}

TEST(CudaStepBackends, ArgumentsThatRequireAGradientGiveResultsThatDoNot) {
  at::Tensor rows = random_stats(121);
  rows.requires_grad_();
  expect_merged_as_on_the_cpu(rows.unbind(), {});
  at::Tensor scale = at::full({}, 4.0);
  scale.requires_grad_();
  EXPECT_FALSE(step_factors(scalar(0), scale, {}, {}, {}).requires_grad());
  expect_one_launch();
}

}  // namespace
}  // namespace ampscaler::cuda
