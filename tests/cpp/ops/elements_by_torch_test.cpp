// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// What the compositions write, against torch's own unscale to the bit, and where they find inf and NaN.

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "core/grad_stats.h"
#include "cpp/ops/mixed_list.h"
#include "ops/stats_by_torch.h"

namespace ampscaler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

at::Tensor scalar(double value) { return at::full({}, value, at::kFloat); }

at::Tensor unscaled_by_torch(const at::Tensor& grad, float inverse) {
  at::Tensor copy = grad.clone();
  at::Tensor found_inf = at::zeros({});
  at::_amp_foreach_non_finite_check_and_unscale_(copy, found_inf, at::full({}, inverse));
  return copy;
}

void expect_same_values(const at::Tensor& actual, const at::Tensor& expected) {
  ASSERT_EQ(actual.scalar_type(), expected.scalar_type());
  const at::Tensor equal =
      at::logical_or(actual == expected, at::logical_and(actual.isnan(), expected.isnan()));
  EXPECT_TRUE(equal.all().item<bool>()) << actual << expected;
  EXPECT_TRUE(
      (actual.signbit() == expected.signbit()).logical_or(actual.isnan()).all().item<bool>());
}

at::Tensor awkward_values(at::ScalarType dtype) {
  at::manual_seed(2);
  const at::Tensor special = at::tensor(
      {0.0, -0.0, kInfinity, -kInfinity, kNaN, 65504.0, -3e38, 6e-8, 1e-45, 1e300}, at::kDouble);
  return at::cat({at::randn({500}, at::kDouble) * 100, special}).to(dtype);
}

TEST(UnscaleByTorch, WritesWhatTorchWrites) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const double scale : {1.0, 65536.0, 3.0, 1e-6, -0.7, 0.0, kInfinity}) {
      const at::Tensor values = awkward_values(dtype);
      const at::Tensor grad = values.clone();
      const auto version = grad._version();
      const auto inverse = static_cast<float>(1.0 / static_cast<float>(scale));
      const at::Tensor expected = unscaled_by_torch(values, inverse);
      const auto [stats, factors] =
          ops::unscale_with_stats_by_torch(grad, scalar(scale), {}, {}, 2.0, {}, {}, 0.0, {});
      expect_same_values(grad, expected);
      EXPECT_EQ(grad._version(), version + 1);
      const at::Tensor overflows = values.isfinite().logical_and(expected.isfinite().logical_not());
      EXPECT_EQ(stats[core::kOverflows].item<double>(), overflows.sum().item<double>());
      EXPECT_EQ(factors[core::kFoundInf].item<float>(), 1.0F);
    }
  }
}

TEST(UnscaleByTorch, AnOverflowAloneSetsTheFlag) {
  const at::Tensor grad = at::full({4}, 60000.0, at::kHalf);
  const auto [stats, factors] =
      ops::unscale_with_stats_by_torch(grad, scalar(0.5), {}, {}, 2.0, 1.0, {}, 0.0, {});
  EXPECT_EQ(stats[core::kOverflows].item<double>(), 4.0);
  EXPECT_EQ(stats[core::kNorm].item<double>(), 240000.0);
  EXPECT_EQ(factors[core::kFoundInf].item<float>(), 1.0F);
  EXPECT_EQ(factors[core::kRoundedClip].item<float>(), 1.0F);
}

TEST(UnscaleByTorch, ClampsInTheSamePass) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const double clip_value : {0.0, 0.1, 1.0, 1e300, kInfinity}) {
      const at::Tensor values = awkward_values(dtype);
      const at::Tensor grad = values.clone();
      ops::unscale_clamp_by_torch(grad, scalar(64.0), clip_value, {}, {});
      const at::ScalarType computed = dtype == at::kDouble ? at::kDouble : at::kFloat;
      const double limit = dtype == at::kDouble ? clip_value : std::fmin(clip_value, kInfinity);
      const at::Tensor product = values.to(computed) * (1.0 / 64.0);
      const at::Tensor limits = at::full_like(product, 1).to(at::kDouble).mul(limit).to(computed);
      const at::Tensor expected = at::minimum(at::maximum(product, -limits), limits).to(dtype);
      const at::Tensor equal =
          at::logical_or(grad == expected, at::logical_and(grad.isnan(), expected.isnan()));
      EXPECT_TRUE(equal.all().item<bool>()) << dtype << " " << clip_value;
    }
  }
}

// As float64; pairs of them for complex.
at::Tensor in_double(const at::Tensor& tensor) {
  return (tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor).to(at::kDouble);
}

// Products of 16-bit gradients are formed in float32, then rounded.
at::Tensor expected_product(const at::Tensor& grad, float factor) {
  const at::Tensor real = grad.is_complex() ? at::view_as_real(grad) : grad;
  const at::Tensor product = real.to(at::kDouble) * static_cast<double>(factor);
  return real.scalar_type() == at::kDouble
             ? product
             : product.to(at::kFloat).to(real.scalar_type()).to(at::kDouble);
}

TEST(ScaleGradsByTorch, MultipliesUnlessNothingIsToBeDone) {
  constexpr std::size_t kLazy = 6;
  for (const auto& [factor, found_inf, written] :
       std::vector<std::tuple<float, float, bool>>{{0.3F, 0.0F, true},
                                                   {1.0F, 0.0F, false},
                                                   {0.3F, 1.0F, false},
                                                   {0.3F, static_cast<float>(kNaN), false}}) {
    std::vector<at::Tensor> before = mixed_list();
    std::vector<at::Tensor> grads = mixed_list();
    ASSERT_TRUE(grads[kLazy].is_conj());
    before.erase(before.begin() + kLazy);
    grads.erase(grads.begin() + kLazy);
    std::vector<std::int64_t> versions;
    for (const at::Tensor& grad : grads) {
      versions.push_back(grad._version());
    }
    ops::scale_grads_by_torch(grads, scalar(factor), scalar(found_inf));
    for (std::size_t i = 0; i < grads.size(); ++i) {
      const at::Tensor expected =
          written ? expected_product(before[i], factor) : in_double(before[i]);
      EXPECT_TRUE(at::equal(in_double(grads[i]), expected)) << i;
      EXPECT_EQ(grads[i]._version(), versions[i] + 1) << i;
    }
  }
}

TEST(FindNonfiniteByTorch, NamesTheFirst) {
  const at::Tensor matrix = at::ones({3, 4});
  matrix[2][1] = kInfinity;
  matrix[1][3] = kNaN;
  const at::Tensor complex = at::ones({5}, at::kComplexFloat);
  at::view_as_real(complex)[3][1] = kNaN;
  at::view_as_real(complex)[3][0] = kInfinity;
  at::view_as_real(complex)[4][0] = -kInfinity;
  const at::Tensor found =
      ops::find_nonfinite_by_torch({matrix, matrix.t(), at::ones({0}), complex, at::ones({})});
  const at::Tensor expected =
      at::tensor({7, 2, 2, 5, 1, 2, -1, 0, 0, 3, 2, 2, -1, 0, 0}, at::kLong).view({5, 3});
  EXPECT_TRUE(at::equal(found, expected)) << found;
  EXPECT_EQ(ops::find_nonfinite_by_torch({}).sizes(), at::IntArrayRef({0, 3}));
}

}  // namespace
}  // namespace ampscaler
