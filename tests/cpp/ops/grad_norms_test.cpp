// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// `grad_norms` on the CPU: each norm is the one that `grad_stats` has for that gradient alone.

#include <gtest/gtest.h>

#include "cpp/ops/gradients.h"

namespace ampscaler {
namespace {

void expect_norms(const Gradients& grads, double scale, double norm_type) {
  const at::Tensor norms = ops::grad_norms(grads, scalar(scale), norm_type);
  ASSERT_EQ(norms.scalar_type(), at::kFloat);
  ASSERT_EQ(norms.sizes(), (std::vector<std::int64_t>{static_cast<std::int64_t>(grads.size())}));
  for (std::size_t i = 0; i < grads.size(); ++i) {
    ops::GradStatsOptions options;
    options.norm_type = norm_type;
    const ops::GradStats alone = ops::grad_stats({grads[i]}, scalar(scale), options);
    EXPECT_TRUE(same_bits(norms[static_cast<std::int64_t>(i)],
                          at::full({}, factor(alone, core::kRoundedNorm))))
        << "gradient " << i << ", norm type " << norm_type;
  }
}

TEST(GradNorms, AreThoseOfEachGradientAlone) {
  Gradients grads = mixed_gradients(71);
  grads.push_back(at::empty({0}));
  grads.push_back(at::randn({700000}));
  grads.push_back(at::tensor({1.0F, static_cast<float>(kInfinity)}));
  grads.push_back(at::tensor({static_cast<float>(kNan), static_cast<float>(kInfinity)}));
  grads.push_back(at::full({3}, 1e200, at::kDouble));
  grads.push_back(at::randn({6, 7}).slice(1, 0, 7, 3));
  grads.push_back(at::randn({60}, at::kComplexFloat));
  grads.insert(grads.begin(), at::empty({0}));
  for (const int threads : {1, 2, 3}) {
    const ThreadsGuard guard(threads);
    for (const double norm_type : {2.0, kInfinity, 1.0, 2.5}) {
      expect_norms(grads, 3.0, norm_type);
    }
  }
}

TEST(GradNorms, MeasuresAKnownNorm) {
  const at::Tensor norms = ops::grad_norms({at::tensor({6.0F, 8.0F}), at::ones({4})}, scalar(2.0));
  EXPECT_TRUE(same_bits(norms, at::tensor({5.0F, 1.0F})));
}

TEST(GradNorms, NormZeroCountsTheElementsThatAreNotZero) {
  const Gradients grads{at::tensor({0.0F, 2.0F, -0.0F, 3.0F}), at::zeros({5}), at::empty({0}),
                        at::ones({9000})};
  EXPECT_TRUE(
      same_bits(ops::grad_norms(grads, scalar(2.0), 0.0), at::tensor({2.0F, 0.0F, 0.0F, 9000.0F})));
}

TEST(GradNorms, NoGradients) { EXPECT_EQ(ops::grad_norms({}, scalar(2.0)).numel(), 0); }

}  // namespace
}  // namespace ampscaler
