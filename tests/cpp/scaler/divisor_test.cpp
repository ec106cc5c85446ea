// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// set_grad_divisor: accumulated micro-batches count as their weighted mean, whatever is done with their
// gradients.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/ampscaler.h>

#include "cpp/error_text.h"
#include "cpp/scaler/optimizers.h"
#include "cpp/scaler/training.h"

namespace ampscaler {
namespace {

TEST(Divisor, IsOneMoreFactorForEveryKindOfOptimizer) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor ordinary_parameter = make_parameter(16.0F);
  const at::Tensor aware_parameter = make_parameter(16.0F);
  const at::Tensor unscaled_parameter = make_parameter(16.0F);
  auto ordinary = make_sgd({ordinary_parameter});
  auto aware = make_device_skipping({aware_parameter});
  auto unscaled = make_device_skipping({unscaled_parameter});
  scaler.set_grad_divisor(2.0);
  EXPECT_EQ(first(scaler.grad_norm(ordinary, kInfinity)), 2.0F);
  scaler.unscale_(unscaled);
  EXPECT_EQ(first(unscaled_parameter.grad()), 2.0F);
  scaler.step(ordinary);
  scaler.step(aware);
  scaler.step(unscaled);  // not divided again
  EXPECT_EQ(first(ordinary_parameter), -1.0F);
  EXPECT_EQ(first(aware_parameter), -1.0F);
  EXPECT_EQ(first(unscaled_parameter), -1.0F);
}

TEST(Divisor, CountsInClips) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor six = make_parameter(at::ones({1}), at::full({1}, 48.0F));
  const at::Tensor eight = make_parameter(at::ones({1}), at::full({1}, 64.0F));
  const at::Tensor third = make_parameter(at::ones({1}), at::full({1}, 64.0F));
  auto ordinary = make_sgd({six});
  auto aware = make_device_skipping({eight});
  auto clamped = make_sgd({third});
  scaler.set_grad_divisor(at::full({1}, 2, at::kLong));
  EXPECT_EQ(first(scaler.clip_grad_norm_({ordinary, aware}, 5.0)), 10.0F);
  scaler.clip_grad_value_(clamped, 7.0);
  scaler.step(ordinary);
  scaler.step(aware);
  scaler.step(clamped);
  EXPECT_EQ(first(six), -2.0F);
  EXPECT_EQ(first(eight), -3.0F);
  EXPECT_EQ(first(third), -6.0F);
}

TEST(Divisor, MicroBatchesGiveTheGradientOfTheWholeBatch) {
  const at::Tensor inputs = at::randn({12, 5}, at::kDouble).to(at::kFloat);
  const std::vector<std::int64_t> sizes{2, 7, 3};
  const auto train = [&](const std::vector<std::int64_t>& split) {
    AmpScaler scaler = make_scaler(1024.0);
    const at::Tensor weight = at::ones({5}).requires_grad_();
    auto optimizer = make_sgd({weight});
    const at::Tensor count = at::zeros({}, at::kLong);
    for (const at::Tensor& batch : inputs.split_with_sizes(split)) {
      scaler.scale(batch.matmul(weight).square().sum()).backward();
      count.add_(batch.size(0));
    }
    scaler.set_grad_divisor(count);
    scaler.step(optimizer);
    return weight.detach();
  };
  EXPECT_TRUE(train(sizes).allclose(train({12}), 1e-5, 1e-6));
}

TEST(Divisor, IsForgottenByUpdate) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  auto optimizer = make_sgd({parameter});
  scaler.set_grad_divisor(2.0);
  scaler.unscale_(optimizer);
  scaler.update();
  EXPECT_EQ(first(scaler.grad_norm(optimizer, kInfinity)), 0.25F);
  scaler.set_grad_divisor(2.0);
  scaler.update(4.0);
  EXPECT_EQ(first(scaler.grad_norm(optimizer, kInfinity)), 0.25F);
}

TEST(Divisor, IsTakenWhenItIsSet) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(16.0F);
  auto optimizer = make_sgd({parameter});
  const at::Tensor count = at::full({}, 2.0);
  scaler.set_grad_divisor(count);
  count.fill_(100.0);
  scaler.step(optimizer);
  EXPECT_EQ(first(parameter), -1.0F);
}

TEST(Divisor, AUselessTensorIsASkip) {
  for (const float bad : {0.0F, -2.0F, kInfinity, kNan}) {
    AmpScaler scaler = make_scaler(4.0);
    const at::Tensor parameter = make_parameter(8.0F);
    const at::Tensor sparse = make_parameter(at::ones({2}), at::ones({2}).to_sparse());
    auto ordinary = make_sgd({parameter});
    auto aware = make_device_skipping({parameter});
    auto by_torch = make_sgd({sparse});
    auto clipped = make_device_skipping({parameter});
    scaler.set_grad_divisor(at::full({}, bad));
    EXPECT_FALSE(scaler.is_finite(ordinary).item<bool>());
    scaler.clip_grad_norm_(clipped, 1.0);
    EXPECT_FALSE(scaler.step(clipped).applied());
    EXPECT_FALSE(scaler.step(aware).applied());
    EXPECT_FALSE(scaler.step(ordinary).applied());
    EXPECT_FALSE(scaler.step(by_torch).applied());
    scaler.update();
    EXPECT_EQ(first(parameter), 1.0F);
    EXPECT_EQ(scaler.get_scale(), 2.0);
  }
}

TEST(Divisor, BadNumbersAreRefused) {
  AmpScaler scaler = make_scaler(4.0);
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.set_grad_divisor(0.0); }),
            "set_grad_divisor: divisor: expected a positive finite number, got 0.");
  for (const double bad : {-1.0, static_cast<double>(kInfinity), static_cast<double>(kNan)}) {
    EXPECT_THROW(scaler.set_grad_divisor(bad), c10::ValueError);
  }
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.set_grad_divisor(at::ones({2})); }),
            "set_grad_divisor: divisor: expected a number or a tensor of real numbers with 1 "
            "element, got CPUFloatType[2].");
  EXPECT_THROW(scaler.set_grad_divisor(at::ones({}, at::kBool)), c10::ValueError);
  EXPECT_THROW(scaler.set_grad_divisor(at::Tensor()), c10::ValueError);
  auto optimizer = make_sgd({make_parameter(8.0F)});
  EXPECT_EQ(first(scaler.grad_norm(optimizer, kInfinity)), 2.0F);
}

TEST(Divisor, ComesBeforeTheFirstCheckOfAnIteration) {
  AmpScaler scaler = make_scaler(4.0);
  auto optimizer = make_sgd({make_parameter(8.0F)});
  scaler.is_finite(optimizer);
  scaler.set_grad_divisor(3.0);
  scaler.set_grad_divisor(2.0);
  scaler.unscale_(optimizer);
  EXPECT_EQ(error_text([&] { scaler.set_grad_divisor(2.0); }),
            "set_grad_divisor() is being called after gradients were unscaled or checked since "
            "the last update().");
  scaler.update();
  scaler.set_grad_divisor(2.0);
}

TEST(Divisor, ADisabledScalerHasNone) {
  AmpScaler scaler(AmpScalerOptions(at::kCPU).enabled(false));
  EXPECT_EQ(error_text([&] { scaler.set_grad_divisor(2.0); }),
            "set_grad_divisor() on a disabled scaler, which does not divide gradients.");
}

TEST(CheckOnly, KeepsTheScaleAtOneAndStillChecks) {
  AmpScaler scaler = AmpScaler::check_only(at::kCPU);
  scaler.set_growth_interval(1);
  EXPECT_EQ(first(scaler.scale(at::full({1}, 3.0F))), 3.0F);
  const at::Tensor parameter = make_parameter(at::ones({2}), at::tensor({12.0F, 16.0F}));
  auto optimizer = make_sgd({parameter});
  scaler.set_grad_divisor(2.0);
  EXPECT_EQ(first(scaler.clip_grad_norm_(optimizer, 5.0)), 10.0F);
  EXPECT_TRUE(scaler.step(optimizer).applied());
  EXPECT_EQ(first(parameter), -2.0F);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 1.0);  // it would have grown
  parameter.mutable_grad() = at::full({2}, kNan);
  EXPECT_FALSE(scaler.step(optimizer).applied());
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 1.0);  // it would have backed off
  scaler.update(8.0);
  EXPECT_EQ(scaler.get_scale(), 1.0);
}

TEST(CheckOnly, CountsCleanSteps) {
  AmpScaler scaler = AmpScaler::check_only(at::kCPU);
  scaler.scale(at::ones({}));
  for (const auto& [gradient, tracker] : {std::pair{1.0F, 1}, {1.0F, 2}, {kInfinity, 0}}) {
    auto optimizer = make_sgd({make_parameter(gradient)});
    scaler.step(optimizer);
    scaler.update();
    EXPECT_EQ(scaler.get_growth_tracker(), tracker);
  }
}

}  // namespace
}  // namespace ampscaler
