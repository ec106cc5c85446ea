// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The compositions' statistics against the rules of core/ fed with float64 values one by one: on the CPU,
// where the dispatcher would choose other kernels.

#include "ops/stats_by_torch.h"

#include <bit>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "core/grad_stats.h"
#include "cpp/ops/mixed_list.h"
#include "ops/sums_by_torch.h"

namespace ampscaler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Call {
  double scale = 1.0;
  std::optional<at::Tensor> divisor = {};
  std::optional<at::Tensor> user_scale = {};
  double norm_type = 2.0;
  std::optional<double> max_norm = {};
  double eps = 0.0;
};

at::Tensor scalar(double value) { return at::full({}, value, at::kFloat); }

ops::StatsAndFactors stats_of(at::TensorList grads, const Call& call,
                              const ops::OptionalTensor& accumulate = {}) {
  return ops::grad_stats_by_torch(grads, scalar(call.scale), call.divisor, call.user_scale,
                                  call.norm_type, call.max_norm, std::nullopt, call.eps,
                                  accumulate);
}

double value_or_one(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? tensor->item<double>() : 1.0;
}

core::GradScaling scaling_of(const Call& call) {
  return {static_cast<float>(call.scale), value_or_one(call.divisor),
          static_cast<float>(value_or_one(call.user_scale))};
}

core::ClipRule rule_of(const Call& call) { return {call.max_norm.value_or(kInfinity), call.eps}; }

// One value into the sums; squared near 1, so that nothing leaves the range of double.
void add_value(core::GradSums& sums, double value, double norm_type) {
  ++sums.elements;
  const double magnitude = std::fabs(value);
  sums.zeros += value == 0.0 ? 1 : 0;
  sums.nans += std::isnan(value) ? 1 : 0;
  sums.infs += std::isinf(value) ? 1 : 0;
  if (!std::isfinite(value) || value == 0.0) {
    return;
  }
  sums.underflows += magnitude < 0x1p-14 ? 1 : 0;
  sums.max_abs_bits = std::max(sums.max_abs_bits, std::bit_cast<std::int64_t>(magnitude));
  int exponent = 0;
  const double ratio = std::frexp(magnitude, &exponent);
  if (norm_type == 2.0) {
    core::add_exactly(sums.limbs, ratio * ratio, 2 * exponent);
  } else if (norm_type != 0.0 && std::isfinite(norm_type)) {
    core::add_exactly(sums.limbs, std::pow(magnitude, norm_type));
  }
}

core::GradSums expected_sums(at::TensorList grads, double norm_type) {
  core::GradSums sums = {};
  for (const at::Tensor& grad : grads) {
    const at::Tensor real = grad.is_complex() ? at::view_as_real(grad.resolve_conj()) : grad;
    const at::Tensor values = real.to(at::kDouble).contiguous();
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      add_value(sums, values.const_data_ptr<double>()[i], norm_type);
    }
    if (norm_type == 0.0 && (real != 0).any().item<bool>()) {
      core::add_exactly(sums.limbs, 1.0);
    }
  }
  return sums;
}

void expect_close(double actual, double expected, const std::string& what) {
  if (std::isfinite(expected)) {
    EXPECT_NEAR(actual, expected, std::fabs(expected) * 0x1p-48) << what;
  } else {
    EXPECT_EQ(std::isnan(actual), std::isnan(expected)) << what << ": " << actual;
    EXPECT_TRUE(std::isnan(expected) || actual == expected) << what << ": " << actual;
  }
}

void expect_results(const ops::StatsAndFactors& actual, core::GradSums sums, const Call& call) {
  double stats[core::kStatsSlots];
  float factors[core::kFactorSlots];
  core::finish(sums, call.norm_type, scaling_of(call), rule_of(call), stats, factors);
  const auto& [actual_stats, actual_factors] = actual;
  ASSERT_EQ(actual_stats.scalar_type(), at::kDouble);
  ASSERT_EQ(actual_factors.scalar_type(), at::kFloat);
  ASSERT_EQ(actual_stats.numel(), core::kStatsSlots);
  ASSERT_EQ(actual_factors.numel(), core::kFactorSlots);
  for (int i = 0; i < core::kStatsSlots; ++i) {
    expect_close(actual_stats[i].item<double>(), stats[i], core::kStatsNames[i]);
  }
  EXPECT_EQ(actual_factors[core::kFoundInf].item<float>(), factors[core::kFoundInf]);
  for (int i = 0; i < core::kFactorSlots; ++i) {
    const float value = actual_factors[i].item<float>();
    const bool same = value == factors[i] || (std::isnan(value) && std::isnan(factors[i]));
    EXPECT_TRUE(same || std::fabs(value / factors[i] - 1) < 0x1p-22)
        << core::kFactorNames[i] << ": " << value << ", expected " << factors[i];
  }
}

const std::vector<Call>& calls() {
  static const std::vector<Call> all{
      {},
      {.scale = 65536.0, .max_norm = 1.0},
      {.scale = 0.3, .max_norm = 1e-6, .eps = 1e-6},
      {.scale = -8.0, .divisor = at::full({}, 12, at::kLong), .user_scale = scalar(-0.1)},
      {.scale = 8.0, .norm_type = kInfinity, .max_norm = 0.01},
      {.scale = 8.0, .norm_type = 1.0, .max_norm = 0.5},
      {.scale = 8.0, .norm_type = 0.0, .max_norm = 3.0},
      {.scale = 8.0, .norm_type = 3.5},
      {.scale = 0.0},
      {.scale = kInfinity, .max_norm = 2.0},
      {.scale = kNaN},
      {.divisor = scalar(0.0)},
      {.divisor = scalar(kNaN)},
      {.user_scale = scalar(0.0)},
      {.scale = 1e-38, .max_norm = 1e-30},
  };
  return all;
}

TEST(StatsByTorch, DrawTheConclusionsOfCore) {
  const std::vector<at::Tensor> grads = mixed_list();
  for (std::size_t i = 0; i < calls().size(); ++i) {
    SCOPED_TRACE("call " + std::to_string(i));
    const Call& call = calls()[i];
    expect_results(stats_of(grads, call), expected_sums(grads, call.norm_type), call);
  }
}

TEST(StatsByTorch, NonfiniteElementsDecideNormAndFlag) {
  for (const std::vector<double>& values :
       {std::vector<double>{1.0, kInfinity}, {kNaN, 2.0}, {-kInfinity, kNaN, 0.0}, {kNaN}}) {
    for (const double norm_type : {2.0, kInfinity, 1.0, 0.0}) {
      const Call call{.scale = 4.0, .norm_type = norm_type, .max_norm = 1.0};
      const std::vector<at::Tensor> grads{at::tensor(values, at::kDouble), at::ones({3})};
      expect_results(stats_of(grads, call), expected_sums(grads, norm_type), call);
    }
  }
}

TEST(StatsByTorch, NoFiniteGradientOverflowsOrVanishes) {
  for (const double value : {1.7e308, 1e200, 1.0, 3e-160, 5e-324}) {
    for (const double scale : {1.0, 1024.0, 1e-3}) {
      const Call call{.scale = scale};
      const std::vector<at::Tensor> grads{at::full({3}, value, at::kDouble),
                                          at::full({2}, value / 2, at::kDouble)};
      expect_results(stats_of(grads, call), expected_sums(grads, 2.0), call);
    }
  }
}

TEST(StatsByTorch, NothingHasNormZeroAndNoFlag) {
  for (const double scale : {1.0, 0.0, kNaN}) {
    const Call call{.scale = scale, .max_norm = 1.0};
    expect_results(stats_of({}, call), core::GradSums{}, call);
    const std::vector<at::Tensor> empty{at::ones({0}), at::ones({2, 0}, at::kHalf)};
    expect_results(stats_of(empty, call), core::GradSums{}, call);
  }
}

TEST(StatsByTorch, AccumulatingCallsAddUp) {
  const std::vector<at::Tensor> grads = mixed_list();
  const at::Tensor words = at::zeros({core::kGradSumsWords}, at::kLong);
  const Call call{.scale = 16.0, .max_norm = 0.25};
  const at::TensorList all(grads);
  stats_of(all.slice(0, 4), call, words);
  const auto version = words._version();
  const ops::StatsAndFactors results = stats_of(all.slice(4), call, words);
  expect_results(results, expected_sums(grads, 2.0), call);
  EXPECT_EQ(words._version(), version + 1);
}

// 3 * 2^21 + 1 ones: more than one chunk, and a sum that float32 cannot count.
TEST(StatsByTorch, LargeTensorsAreSummedInChunks) {
  const at::Tensor grad = at::ones({3 * ops::kChunkElements + 1}, at::kHalf);
  const auto stats = std::get<0>(stats_of({grad}, {}));
  EXPECT_NEAR(stats[core::kNorm].item<double>(), std::sqrt(3.0 * (1 << 21) + 1), 1e-10);
  EXPECT_EQ(stats[core::kElements].item<double>(), 3.0 * (1 << 21) + 1);
  const auto counted = std::get<0>(stats_of({grad}, {.norm_type = 0.0}));
  EXPECT_EQ(counted[core::kNorm].item<double>(), 1.0);
}

// What a device without float64 gets.
TEST(StatsByTorch, SumsAlsoWorkInFloat32) {
  for (const float value : {3e38F, 1.5F, 3e-25F}) {
    const at::Tensor grad = at::full({1000}, value);
    const at::Tensor words = ops::sums_by_torch(grad, 2.0, at::kFloat);
    core::GradSums sums;
    std::memcpy(&sums, words.const_data_ptr(), sizeof(sums));
    const double norm = core::to_double(core::stored_norm(sums, 2.0));
    EXPECT_NEAR(norm / (std::sqrt(1000.0) * value), 1.0, 1e-6);
    EXPECT_EQ(std::bit_cast<double>(sums.max_abs_bits), value);
    const at::Tensor read = ops::to_real(ops::stored_norms(words, 2.0, at::kFloat), at::kFloat);
    EXPECT_EQ(std::isinf(read.item<float>()), std::isinf(static_cast<float>(norm)));
    EXPECT_EQ(ops::largest_magnitude(words, at::kFloat).item<float>(), value);
  }
}

TEST(GradNormsByTorch, AreThoseOfEachGradientAlone) {
  const std::vector<at::Tensor> grads = mixed_list();
  for (const double norm_type : {2.0, kInfinity, 3.0}) {
    const at::Tensor norms = ops::grad_norms_by_torch(grads, scalar(-4.0), norm_type);
    ASSERT_EQ(norms.scalar_type(), at::kFloat);
    for (std::size_t i = 0; i < grads.size(); ++i) {
      const Call call{.scale = -4.0, .norm_type = norm_type};
      const double expected = std::get<0>(stats_of(grads[i], call))[core::kNorm].item<double>();
      EXPECT_EQ(norms[static_cast<std::int64_t>(i)].item<float>(), static_cast<float>(expected));
    }
  }
  const at::Tensor counts = ops::grad_norms_by_torch({at::ones({3}), at::zeros({4})}, scalar(8), 0);
  EXPECT_TRUE(at::equal(counts, at::tensor({3.0F, 0.0F})));
}

TEST(MergeStatsByTorch, IsTheResultOfOneList) {
  const std::vector<at::Tensor> grads = mixed_list();
  const at::TensorList all(grads);
  for (const double norm_type : {2.0, kInfinity, 1.0, 0.0}) {
    const Call part{.scale = 16.0, .norm_type = norm_type};
    Call whole = part;
    whole.max_norm = 0.125;
    const auto expected = stats_of(all, whole);
    const std::vector<at::Tensor> parts{std::get<0>(stats_of(all.slice(0, 4), part)),
                                        std::get<0>(stats_of({}, part)),
                                        std::get<0>(stats_of(all.slice(4), part))};
    const auto merged =
        ops::merge_stats_by_torch(parts, norm_type, 0.125, std::nullopt, /*eps=*/0.0);
    EXPECT_TRUE(at::allclose(std::get<0>(merged), std::get<0>(expected), 1e-13, 0.0))
        << std::get<0>(merged) << std::get<0>(expected);
    EXPECT_TRUE(at::allclose(std::get<1>(merged).slice(0, 0, 3),
                             std::get<1>(expected).slice(0, 0, 3), 1e-6, 0.0));
  }
}

at::Tensor stats_row(double norm, double infs, double nans) {
  return at::tensor({norm, norm, 0.0, 0.0, 4.0, infs, nans, 0.0, 1.0}, at::kDouble);
}

TEST(MergeStatsByTorch, NonfinitePartsDecide) {
  const auto merge = [](const std::vector<at::Tensor>& parts) {
    return ops::merge_stats_by_torch(parts, 2.0, 1.0, std::nullopt, 0.0);
  };
  const auto with_nan =
      merge({stats_row(1e200, 0, 0), stats_row(kInfinity, 1, 0), stats_row(kNaN, 0, 1)});
  EXPECT_TRUE(std::isnan(std::get<0>(with_nan)[core::kNorm].item<double>()));
  EXPECT_EQ(std::get<0>(with_nan)[core::kClipCoefficient].item<double>(), 1.0);
  EXPECT_EQ(std::get<1>(with_nan)[core::kFoundInf].item<float>(), 1.0F);
  const auto with_inf = merge({stats_row(3.0, 0, 0), stats_row(kInfinity, 1, 0)});
  EXPECT_EQ(std::get<0>(with_inf)[core::kNorm].item<double>(), kInfinity);
  const auto large = merge({stats_row(3e200, 0, 0), stats_row(4e200, 0, 0)});
  EXPECT_NEAR(std::get<0>(large)[core::kNorm].item<double>(), 5e200, 1e187);
}

TEST(StepFactorsByTorch, AreTheScalarsOfAFusedStep) {
  const auto factors = [](float found_inf, double scale, const ops::OptionalTensor& clip) {
    const at::Tensor result =
        ops::step_factors_by_torch(scalar(found_inf), scalar(scale), at::full({1}, 3, at::kInt),
                                   at::full({}, 0.1, at::kDouble), clip);
    return std::pair(result[0].item<float>(), result[1].item<float>());
  };
  const double user_scale = static_cast<float>(0.1);
  const auto rounded = [&](double scale, double clip) {
    return static_cast<float>(user_scale * scale * 3.0 / clip);
  };
  EXPECT_EQ(factors(0, 8, std::nullopt), std::pair(0.0F, rounded(8, 1)));
  EXPECT_EQ(factors(0, 8, scalar(0.5)), std::pair(0.0F, rounded(8, 0.5)));
  EXPECT_EQ(factors(2, 8, scalar(0.5)), std::pair(1.0F, rounded(8, 1)));
  EXPECT_EQ(factors(static_cast<float>(kNaN), 8, scalar(0.5)), std::pair(1.0F, rounded(8, 1)));
  EXPECT_EQ(factors(0, 8, scalar(0.0)), std::pair(1.0F, rounded(8, 1)));
  EXPECT_EQ(factors(0, 0, std::nullopt), std::pair(1.0F, 1.0F));
  EXPECT_EQ(factors(0, kNaN, std::nullopt), std::pair(1.0F, 1.0F));
  EXPECT_EQ(factors(0, 3e38, std::nullopt).first, 0.0F);
  EXPECT_EQ(factors(0, 3e38, scalar(1e-3)), std::pair(1.0F, rounded(static_cast<float>(3e38), 1)));
}

}  // namespace
}  // namespace ampscaler
