// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// clip_grad_norm_ and clip_grad_value_ of AmpScaler, with every kind of optimizer. Numbers are small
// integers and powers of two, so that results are exact.

#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include <ampscaler/ampscaler.h>

#include "cpp/error_text.h"
#include "cpp/scaler/optimizers.h"
#include "cpp/scaler/training.h"

namespace ampscaler {
namespace {

// With scale 4 a true gradient [6, 8] of norm 10.
at::Tensor six_eight() { return make_parameter(at::ones({2}), at::tensor({24.0F, 32.0F})); }

std::vector<float> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kFloat).contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

using Values = std::vector<float>;

TEST(ClipNorm, AnOrdinaryOptimizerIsUnscaledAndClippedInPlace) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = six_eight();
  auto optimizer = make_sgd({parameter});
  const at::Tensor norm = scaler.clip_grad_norm_(optimizer, 5.0);
  EXPECT_EQ(norm.scalar_type(), at::kFloat);
  EXPECT_EQ(norm.dim(), 0);
  EXPECT_EQ(first(norm), 10.0F);
  EXPECT_EQ(values(parameter.grad()), (Values{3.0F, 4.0F}));
  EXPECT_EQ(error_text([&] { scaler.unscale_(optimizer); }),
            "unscale_() has already been called on this optimizer since the last update().");
  EXPECT_TRUE(scaler.step(optimizer).applied());
  EXPECT_EQ(values(parameter), (Values{-2.0F, -3.0F}));
}

TEST(ClipNorm, WithinTheLimitItIsUnscale) {
  const at::Tensor gradient = at::randn({1000}) * 3000.0;
  AmpScaler scaler = make_scaler(3000.0);
  const at::Tensor clipped = make_parameter(at::ones({1000}), gradient.clone());
  const at::Tensor unscaled = make_parameter(at::ones({1000}), gradient.clone());
  auto first_optimizer = make_sgd({clipped});
  auto second_optimizer = make_sgd({unscaled});
  scaler.clip_grad_norm_(first_optimizer, 1000.0);
  scaler.unscale_(second_optimizer);
  EXPECT_TRUE(clipped.grad().equal(unscaled.grad()));
}

TEST(ClipNorm, AnAmpAwareOptimizerGetsTheCoefficientInStep) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = six_eight();
  auto optimizer = make_device_skipping({parameter});
  const auto version = parameter.grad()._version();
  EXPECT_EQ(first(scaler.clip_grad_norm_(optimizer, 5.0)), 10.0F);
  EXPECT_EQ(values(parameter.grad()), (Values{24.0F, 32.0F}));
  EXPECT_EQ(parameter.grad()._version(), version);
  EXPECT_TRUE(scaler.grads_are_scaled(optimizer));
  scaler.step(optimizer);
  EXPECT_EQ(values(parameter), (Values{-2.0F, -3.0F}));
}

TEST(ClipNorm, TheCoefficientOutlivesUnscale) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = six_eight();
  auto optimizer = make_device_skipping({parameter});
  scaler.clip_grad_norm_(optimizer, 5.0);
  scaler.unscale_(optimizer);
  EXPECT_EQ(values(parameter.grad()), (Values{6.0F, 8.0F}));
  EXPECT_EQ(first(scaler.grad_norm(optimizer)), 5.0F);
  scaler.step(optimizer);
  EXPECT_EQ(values(parameter), (Values{-2.0F, -3.0F}));
}

TEST(ClipNorm, TheCoefficientDoesNotOutliveUpdate) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = six_eight();
  auto optimizer = make_device_skipping({parameter});
  scaler.clip_grad_norm_(optimizer, 5.0);
  scaler.update();
  scaler.step(optimizer);
  EXPECT_EQ(values(parameter), (Values{-5.0F, -7.0F}));
}

TEST(ClipNorm, AfterUnscaleOnlyTheClipIsLeft) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor ordinary_parameter = six_eight();
  const at::Tensor aware_parameter = six_eight();
  auto ordinary = make_sgd({ordinary_parameter});
  auto aware = make_device_skipping({aware_parameter});
  scaler.unscale_(ordinary);
  scaler.unscale_(aware);
  EXPECT_EQ(first(scaler.clip_grad_norm_(ordinary, 5.0)), 10.0F);
  EXPECT_EQ(first(scaler.clip_grad_norm_(aware, 5.0)), 10.0F);
  scaler.step(ordinary);
  scaler.step(aware);
  EXPECT_EQ(values(ordinary_parameter), (Values{-2.0F, -3.0F}));
  EXPECT_EQ(values(aware_parameter), (Values{-2.0F, -3.0F}));
}

TEST(ClipNorm, ASecondClipSeesClippedGradients) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor ordinary_parameter = six_eight();
  const at::Tensor aware_parameter = six_eight();
  auto ordinary = make_sgd({ordinary_parameter});
  auto aware = make_device_skipping({aware_parameter});
  for (const float norm : {10.0F, 5.0F}) {
    EXPECT_EQ(first(scaler.clip_grad_norm_(ordinary, norm / 2.0)), norm);
    EXPECT_EQ(first(scaler.clip_grad_norm_(aware, norm / 2.0)), norm);
  }
  scaler.step(ordinary);
  scaler.step(aware);
  EXPECT_EQ(values(ordinary_parameter), (Values{-0.5F, -1.0F}));
  EXPECT_EQ(values(aware_parameter), (Values{-0.5F, -1.0F}));
}

TEST(ClipNorm, WhereFoldingIsNotSafeScaledGradientsAreClipped) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = six_eight();
  auto optimizer = make_device_skipping({parameter});
  UnsureAdapter adapter(optimizer);
  adapter.user = at::full({}, 2.0);
  EXPECT_EQ(first(scaler.clip_grad_norm_(adapter, 2.5)), 5.0F);  // of [3, 4]: the user's factor too
  EXPECT_EQ(values(parameter.grad()), (Values{12.0F, 16.0F}));
  EXPECT_TRUE(scaler.grads_are_scaled(adapter));
  scaler.step(adapter);
  EXPECT_EQ(values(parameter), (Values{-0.5F, -1.0F}));
}

TEST(ClipNorm, AUsersFactorMayComeAfterTheClip) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = six_eight();
  auto optimizer = make_device_skipping({parameter});
  UnsureAdapter adapter(optimizer);
  adapter.folds = true;
  scaler.clip_grad_norm_(adapter, 5.0);
  adapter.user = at::full({}, 2.0);
  scaler.step(adapter);
  EXPECT_EQ(values(parameter), (Values{-0.5F, -1.0F}));
}

TEST(ClipNorm, IsOneNormOverOptimizersOfDifferentKinds) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor six = make_parameter(at::ones({1}), at::full({1}, 24.0F));
  const at::Tensor eight = make_parameter(at::ones({1}), at::full({1}, 32.0F));
  auto ordinary = make_sgd({six});
  auto aware = make_device_skipping({eight});
  EXPECT_EQ(first(scaler.clip_grad_norm_({ordinary, aware}, 5.0)), 10.0F);
  EXPECT_EQ(first(scaler.grad_norm({ordinary, aware})), 5.0F);
  scaler.step(ordinary);
  scaler.step(aware);
  EXPECT_EQ(first(six), -2.0F);
  EXPECT_EQ(first(eight), -3.0F);
}

TEST(ClipNorm, NonfiniteGradientsAreNotClippedAndSkipped) {
  for (const float bad : {kInfinity, kNan}) {
    AmpScaler scaler = make_scaler(4.0);
    const at::Tensor ordinary_parameter = make_parameter(at::ones({2}), at::tensor({bad, 32.0F}));
    const at::Tensor aware_parameter = make_parameter(at::ones({2}), at::tensor({bad, 32.0F}));
    auto ordinary = make_sgd({ordinary_parameter});
    auto aware = make_device_skipping({aware_parameter});
    for (const float norm : {first(scaler.clip_grad_norm_(ordinary, 1.0)),
                             first(scaler.clip_grad_norm_(aware, 1.0))}) {
      EXPECT_EQ(std::isnan(norm), std::isnan(bad));
      EXPECT_FALSE(std::isfinite(norm));
    }
    EXPECT_EQ(values(ordinary_parameter.grad())[1], 8.0F);
    EXPECT_FALSE(scaler.step(ordinary).applied());
    EXPECT_FALSE(scaler.step(aware).applied());
    scaler.update();
    EXPECT_EQ(values(aware_parameter), (Values{1.0F, 1.0F}));
    EXPECT_EQ(scaler.get_scale(), 2.0);
  }
}

TEST(ClipNorm, AnOptimizerClippedWithANonfiniteOneDoesNotStepUnclipped) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor finite = six_eight();
  auto good = make_sgd({finite});
  auto bad = make_device_skipping({make_parameter(kNan)});
  scaler.clip_grad_norm_({good, bad}, 1.0);
  EXPECT_FALSE(scaler.is_finite(good).item<bool>());
  EXPECT_FALSE(scaler.step(good).applied());
  EXPECT_FALSE(scaler.step(bad).applied());
  EXPECT_EQ(values(finite), (Values{1.0F, 1.0F}));
}

TEST(ClipNorm, WithoutGradientsNothingChanges) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = at::ones({2}).requires_grad_();
  auto optimizer = make_sgd({parameter});
  EXPECT_EQ(first(scaler.clip_grad_norm_(optimizer, 1.0)), 0.0F);
  scaler.clip_grad_value_(optimizer, 1.0);
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.step(optimizer); }),
            "No inf checks were recorded for this optimizer.");
  parameter.mutable_grad() = at::full({2}, 8.0F);
  scaler.step(optimizer);
  EXPECT_EQ(first(parameter), -1.0F);
}

TEST(ClipNorm, OneOptimizerOfSeveralMayBeWithoutGradients) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor empty = at::ones({2}).requires_grad_();
  auto without = make_sgd({empty});
  auto with = make_sgd({six_eight()});
  EXPECT_EQ(first(scaler.clip_grad_norm_({without, with}, 1.0)), 10.0F);
  EXPECT_THROW(scaler.step(without), AssertionError);
  EXPECT_TRUE(scaler.step(with).applied());
}

TEST(ClipNorm, TheLimitMayBeATensorThatIsNotRead) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = six_eight();
  auto optimizer = make_device_skipping({parameter});
  const std::int64_t before = host_read_count();
  scaler.clip_grad_norm_(optimizer, at::full({}, -1.0));  // no limit
  scaler.clip_grad_norm_(optimizer, at::full({1}, 5, at::kLong));
  scaler.step(optimizer);
  EXPECT_EQ(host_read_count(), before);
  EXPECT_EQ(values(parameter), (Values{-2.0F, -3.0F}));
}

TEST(ClipNorm, InfinityOnlyMeasures) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = six_eight();
  auto optimizer = make_sgd({parameter});
  scaler.unscale_(optimizer);
  const auto version = parameter.grad()._version();
  EXPECT_EQ(first(scaler.clip_grad_norm_(optimizer, kInfinity)), 10.0F);
  EXPECT_EQ(parameter.grad()._version(), version);
}

TEST(ClipNorm, OtherNormsAndEps) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = six_eight();
  auto optimizer = make_sgd({parameter});
  EXPECT_EQ(first(scaler.grad_norm(optimizer, kInfinity)), 8.0F);
  EXPECT_EQ(first(scaler.grad_norm(optimizer, 1.0)), 14.0F);
  EXPECT_EQ(first(scaler.clip_grad_norm_(optimizer, 4.0, kInfinity)), 8.0F);
  EXPECT_EQ(values(parameter.grad()), (Values{3.0F, 4.0F}));
  EXPECT_EQ(first(scaler.clip_grad_norm_(optimizer, 4.0, 2.0, /*eps=*/3.0)), 5.0F);
  EXPECT_EQ(values(parameter.grad()), (Values{1.5F, 2.0F}));  // times 4 / (5 + 3)
}

TEST(ClipNorm, AdamFollowsTheExactGradient) {
  const at::Tensor gradient = at::randn({300});
  const double norm = gradient.to(at::kDouble).norm().item<double>();
  const at::Tensor clipped = make_parameter(at::ones({300}), gradient * 1024.0);
  const at::Tensor reference =
      make_parameter(at::ones({300}), (gradient.to(at::kDouble) / norm).to(at::kFloat));
  torch::optim::Adam optimizer({clipped}, torch::optim::AdamOptions(0.1));
  torch::optim::Adam exact({reference}, torch::optim::AdamOptions(0.1));
  AmpScaler scaler = make_scaler(1024.0);
  EXPECT_NEAR(first(scaler.clip_grad_norm_(optimizer, 1.0)), norm, norm * 0x1p-23);
  EXPECT_TRUE(clipped.grad().allclose(reference.grad(), 0x1p-22, 0.0));
  scaler.step(optimizer);
  exact.step();
  EXPECT_TRUE(clipped.allclose(reference, 1e-6, 0.0));
}

TEST(ClipNorm, WaitsForNothing) {
  AmpScaler scaler = make_scaler(4.0);
  auto ordinary = make_sgd({six_eight()});
  auto aware = make_device_skipping({six_eight()});
  const std::int64_t before = host_read_count();
  scaler.clip_grad_norm_({ordinary, aware}, 1.0);
  scaler.grad_norm(aware);
  scaler.is_finite(ordinary);
  scaler.step(aware);
  EXPECT_EQ(host_read_count(), before);
  scaler.step(ordinary);
  EXPECT_EQ(host_read_count(), before + 1);
}

TEST(ClipValue, UnscalesAndClamps) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor ordinary_parameter =
      make_parameter(at::ones({3}), at::tensor({24.0F, -32.0F, 4.0F}));
  const at::Tensor aware_parameter =
      make_parameter(at::ones({3}), at::tensor({24.0F, -32.0F, 4.0F}));
  auto ordinary = make_sgd({ordinary_parameter});
  auto aware = make_device_skipping({aware_parameter});
  scaler.clip_grad_value_(ordinary, 2.0);
  scaler.clip_grad_value_(aware, 2.0);
  EXPECT_EQ(values(ordinary_parameter.grad()), (Values{2.0F, -2.0F, 1.0F}));
  EXPECT_FALSE(scaler.grads_are_scaled(aware));
  scaler.clip_grad_value_(ordinary, 1.5);  // once unscaled, only clamped
  EXPECT_EQ(values(ordinary_parameter.grad()), (Values{1.5F, -1.5F, 1.0F}));
  scaler.step(ordinary);
  scaler.step(aware);
  EXPECT_EQ(values(ordinary_parameter), (Values{-0.5F, 2.5F, 0.0F}));
  EXPECT_EQ(values(aware_parameter), (Values{-1.0F, 3.0F, 0.0F}));
}

TEST(ClipValue, ClampsWhatAnEarlierClipHasLeft) {
  for (const bool unscaled : {false, true}) {
    AmpScaler scaler = make_scaler(4.0);
    const at::Tensor parameter = six_eight();
    auto optimizer = make_device_skipping({parameter});
    scaler.clip_grad_norm_(optimizer, 5.0);  // [3, 4], in the step
    if (unscaled) {
      scaler.unscale_(optimizer);
    }
    scaler.clip_grad_value_(optimizer, 3.5);
    EXPECT_EQ(values(parameter.grad()), (Values{3.0F, 3.5F}));
    scaler.step(optimizer);
    EXPECT_EQ(values(parameter), (Values{-2.0F, -2.5F}));
  }
}

TEST(ClipValue, NonfiniteGradientsAreSkipped) {
  AmpScaler scaler = make_scaler(4.0);
  auto optimizer = make_sgd({make_parameter(kInfinity)});
  scaler.clip_grad_value_(optimizer, 1.0);
  EXPECT_FALSE(scaler.step(optimizer).applied());
}

TEST(DisabledScaler, ClipsGradientsAsTheyAre) {
  AmpScaler scaler(AmpScalerOptions(at::kCPU).enabled(false));
  const at::Tensor parameter = make_parameter(at::ones({2}), at::tensor({6.0F, 8.0F}));
  auto optimizer = make_sgd({parameter});
  EXPECT_EQ(first(scaler.clip_grad_norm_(optimizer, 5.0)), 10.0F);
  EXPECT_EQ(values(parameter.grad()), (Values{3.0F, 4.0F}));
  auto aware = make_device_skipping({parameter});  // its step is the ordinary one
  EXPECT_EQ(first(scaler.clip_grad_norm_(aware, 2.5)), 5.0F);
  EXPECT_EQ(values(parameter.grad()), (Values{1.5F, 2.0F}));
  scaler.clip_grad_value_(optimizer, 1.75);
  EXPECT_EQ(values(parameter.grad()), (Values{1.5F, 1.75F}));
  EXPECT_EQ(first(scaler.grad_norm(optimizer, kInfinity)), 1.75F);
  EXPECT_TRUE(scaler.is_finite(optimizer).item<bool>());
  EXPECT_FALSE(scaler.grads_are_scaled(optimizer));
}

}  // namespace
}  // namespace ampscaler
