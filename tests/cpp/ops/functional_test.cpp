// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The stateless chain from C++: known values, missing gradients, bad arguments.

#include <limits>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/functional.h>

#include "cpp/error_text.h"

namespace ampscaler::functional {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Functional, UnscaleGivesNewTensorsAndKeepsMissingOnes) {
  const at::Tensor scaled = at::tensor({6.0F, 8.0F});
  const auto unscaled = unscale_gradients({scaled, at::Tensor()}, 2.0);
  EXPECT_TRUE(at::equal(unscaled[0], at::tensor({3.0F, 4.0F})));
  EXPECT_FALSE(unscaled[1].defined());
  EXPECT_EQ(scaled[0].item<float>(), 6.0F);
  EXPECT_TRUE(at::equal(unscale_gradients({scaled}, at::full({1}, 2.0F))[0], unscaled[0]));
}

TEST(Functional, ValuesAreThoseOfADivision) {
  at::manual_seed(3);
  const at::Tensor scaled = at::randn({1000});
  EXPECT_TRUE(at::equal(unscale_gradients({scaled}, 3000.0)[0], scaled / 3000.0));
}

TEST(Functional, GlobalGradNorm) {
  const auto norm = global_grad_norm({at::tensor({3.0F, 4.0F}), at::Tensor(), at::tensor({12.0F})});
  EXPECT_EQ(norm.item<float>(), 13.0F);
  EXPECT_EQ(norm.dim(), 0);
  EXPECT_EQ(norm.scalar_type(), at::kFloat);
  EXPECT_EQ(global_grad_norm({}).item<float>(), 0.0F);
  EXPECT_EQ(global_grad_norm({at::Tensor()}).item<float>(), 0.0F);
}

TEST(Functional, GlobalGradNormNeitherOverflowsNorUnderflows) {
  EXPECT_FLOAT_EQ(global_grad_norm({at::full({4}, 1e30F)}).item<float>(), 2e30F);
  EXPECT_FLOAT_EQ(global_grad_norm({at::full({4}, 1e-30F)}).item<float>(), 2e-30F);
  EXPECT_FLOAT_EQ(global_grad_norm({at::full({4}, 60000.0, at::kHalf)}).item<float>(), 120000.0F);
}

TEST(Functional, UnscaleAndClip) {
  const at::Tensor scale = at::full({}, 2.0);
  const auto clipped = unscale_and_clip({at::tensor({6.0F, 8.0F}), at::Tensor()}, scale, 2.5);
  EXPECT_TRUE(at::equal(clipped.gradients[0], at::tensor({1.5F, 2.0F})));
  EXPECT_FALSE(clipped.gradients[1].defined());
  EXPECT_EQ(clipped.grad_norm.item<float>(), 5.0F);
  EXPECT_EQ(clipped.clip_coefficient.item<float>(), 0.5F);
  EXPECT_EQ(clipped.found_inf.item<float>(), 0.0F);
  const auto with_eps =
      unscale_and_clip({at::tensor({6.0F, 8.0F})}, scale, 2.0, kInfinity, /*eps=*/1.0);
  EXPECT_EQ(with_eps.grad_norm.item<float>(), 4.0F);
  EXPECT_FLOAT_EQ(with_eps.clip_coefficient.item<float>(), 0.4F);
}

TEST(Functional, UnscaleAndClipLeavesNonFiniteGradientsUnclipped) {
  for (const double bad : {kInfinity, -kInfinity, kNan}) {
    const auto clipped = unscale_and_clip({at::full({1}, bad), at::full({1}, 400.0)},
                                          at::full({}, 2.0), /*max_norm=*/1.0);
    EXPECT_EQ(clipped.gradients[1].item<float>(), 200.0F);
    EXPECT_EQ(clipped.clip_coefficient.item<float>(), 1.0F);
    EXPECT_EQ(clipped.found_inf.item<float>(), 1.0F);
  }
}

TEST(Functional, UnscaleAndClipChecksItsNumbers) {
  const std::vector<at::Tensor> scaled{at::ones({2})};
  const at::Tensor scale = at::ones({});
  EXPECT_THROW(unscale_and_clip(scaled, scale, 0.0), c10::ValueError);
  EXPECT_THROW(unscale_and_clip(scaled, scale, kNan), c10::ValueError);
  EXPECT_THROW(unscale_and_clip(scaled, scale, 1.0, -1.0), c10::ValueError);
  EXPECT_THROW(unscale_and_clip(scaled, scale, 1.0, 2.0, kInfinity), c10::ValueError);
  EXPECT_THROW(unscale_and_clip(scaled, at::ones({2}), 1.0), c10::ValueError);
}

TEST(Functional, PlanForFiniteGradients) {
  const auto plan = plan_mixed_precision_update({at::tensor({6.0F, 8.0F})}, 2.0, 2.5);
  EXPECT_EQ(plan.grad_norm.item<float>(), 5.0F);
  EXPECT_DOUBLE_EQ(plan.clip_coefficient, 2.5 / (5.0 + 1e-12));
  EXPECT_TRUE(at::allclose(plan.gradients[0], at::tensor({1.5F, 2.0F}), 0.0, 0.0));
  EXPECT_TRUE(plan.should_step);
  EXPECT_EQ(plan.next_scale, 2.0);
  EXPECT_EQ(plan.reason, "finite_gradient");
}

TEST(Functional, FiniteGradientsWithANormBeyondFloatStep) {
  for (const at::Tensor& gradient : {at::full({4}, 3e38F), at::full({4}, 1e300, at::kDouble)}) {
    const auto plan = plan_mixed_precision_update({gradient, at::ones({0}, at::kDouble)}, 1.0, 1.0);
    EXPECT_TRUE(plan.should_step);
    EXPECT_EQ(plan.reason, "finite_gradient");
    EXPECT_EQ(plan.grad_norm.item<float>(), kInfinity);
    EXPECT_NEAR(plan.gradients[0][0].item<double>(), 0.5, 1e-6);
  }
}

TEST(Functional, PlanForAnOverflow) {
  for (const double bad : {kInfinity, -kInfinity, kNan}) {
    const auto plan =
        plan_mixed_precision_update({at::full({1}, bad), at::full({1}, 2.0)}, 1024.0, 1.0);
    EXPECT_FALSE(plan.should_step);
    EXPECT_EQ(plan.next_scale, 512.0);
    EXPECT_EQ(plan.clip_coefficient, 0.0);
    EXPECT_EQ(plan.grad_norm.item<float>(), kInfinity);
    EXPECT_EQ(plan.gradients[1].item<float>(), 2.0F / 1024.0F);  // unscaled, not clipped
    EXPECT_EQ(plan.reason, "non_finite_gradient");
  }
}

TEST(Functional, BadNumbersAreRefused) {
  const std::vector<at::Tensor> grads{at::ones({1})};
  for (const double bad : {0.0, -1.0, -kInfinity}) {
    EXPECT_EQ(error_text<c10::ValueError>([&] { unscale_gradients(grads, bad); }),
              "scale must be positive");
    EXPECT_EQ(error_text<c10::ValueError>([&] { plan_mixed_precision_update(grads, 1.0, bad); }),
              "max_norm must be positive");
  }
  EXPECT_EQ(error_text<c10::ValueError>([&] { unscale_gradients(grads, kNan); }),
            "scale must be finite, got nan");
  EXPECT_EQ(error_text<c10::ValueError>([&] { unscale_gradients(grads, kInfinity); }),
            "scale must be finite, got inf");
  EXPECT_EQ(error_text<c10::ValueError>([&] { plan_mixed_precision_update(grads, 1.0, kNan); }),
            "max_norm must be positive");
  EXPECT_EQ(error_text<c10::ValueError>([&] { plan_mixed_precision_update(grads, 1.0, 1.0, 1.0); }),
            "backoff_factor: expected a value in (0, 1), got 1");
}

}  // namespace
}  // namespace ampscaler::functional
