// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// One iteration of AmpScaler and many: scaling, unscaling, steps, skips, several optimizers, sparse
// gradients, disabled mode.

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <ampscaler/ampscaler.h>

#include "cpp/scaler/training.h"

namespace ampscaler {
namespace {

TEST(Scale, MultipliesWithoutTouchingTheInput) {
  AmpScaler scaler(AmpScalerOptions(at::kCPU).init_scale(8.0));
  const at::Tensor loss = at::full({}, 3.0F).requires_grad_();
  const at::Tensor scaled = scaler.scale(loss);
  EXPECT_EQ(scaled.item<float>(), 24.0F);
  EXPECT_EQ(loss.item<float>(), 3.0F);
  scaled.backward();
  EXPECT_EQ(loss.grad().item<float>(), 8.0F);
}

TEST(Scale, ResultDtypesAreTorchs) {
  AmpScaler scaler(AmpScalerOptions(at::kCPU).init_scale(65536.0));
  EXPECT_EQ(scaler.scale(at::ones({}, at::kHalf)).scalar_type(), at::kFloat);
  EXPECT_EQ(scaler.scale(at::ones({2}, at::kHalf)).scalar_type(), at::kHalf);
  EXPECT_EQ(first(scaler.scale(at::full({2}, 0.5, at::kHalf))), 32768.0F);
  EXPECT_EQ(first(scaler.scale(at::ones({2}, at::kHalf))), kInfinity);
  EXPECT_EQ(scaler.scale(at::ones({}, at::kDouble)).scalar_type(), at::kDouble);
  EXPECT_EQ(scaler.scale(at::ones({3}, at::kInt)).scalar_type(), at::kFloat);
}

TEST(Scale, ALateBackwardFailsForATensorAndWorksForAList) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor loss = at::ones({}).requires_grad_();
  const at::Tensor alone = scaler.scale(loss);
  const std::vector<at::Tensor> list = scaler.scale(at::TensorList{loss, loss});
  scaler.update(2.0);
  EXPECT_THROW(alone.backward(), c10::Error);
  list[1].backward();
  EXPECT_EQ(loss.grad().item<float>(), 4.0F);
}

TEST(Unscale, DividesOnceAndSetsTheFlag) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  auto optimizer = make_sgd({parameter});
  const auto version = parameter.grad()._version();
  scaler.unscale_(optimizer);
  EXPECT_EQ(first(parameter.grad()), 2.0F);
  EXPECT_EQ(parameter.grad()._version(), version);
}

TEST(Unscale, TheInverseIsFormedInDouble) {
  AmpScaler scaler = make_scaler(3000.0);
  at::manual_seed(5);
  const at::Tensor gradient = at::randn({1000});
  const at::Tensor parameter = make_parameter(at::zeros({1000}), gradient.clone());
  auto optimizer = make_sgd({parameter});
  scaler.unscale_(optimizer);
  EXPECT_TRUE(at::equal(parameter.grad(), gradient * static_cast<float>(1.0 / 3000.0)));
}

TEST(Unscale, AllDtypesAndLayoutsInOneOptimizer) {
  AmpScaler scaler = make_scaler(4.0);
  std::vector<at::Tensor> parameters;
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    parameters.push_back(make_parameter(at::ones({2, 3}, dtype), at::full({3, 2}, 8.0, dtype).t()));
    parameters.push_back(make_parameter(at::ones({0}, dtype), at::ones({0}, dtype)));
  }
  parameters.push_back(make_parameter(at::ones({4}), at::full({8}, 8.0F).slice(0, 0, 8, 2)));
  auto optimizer = make_sgd(parameters);
  scaler.unscale_(optimizer);
  for (const at::Tensor& parameter : parameters) {
    EXPECT_TRUE(at::all(parameter.grad() == 2.0).item<bool>()) << parameter.grad();
  }
}

TEST(Unscale, SparseGradientsAreDividedOnce) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor indices = at::zeros({1, 2}, at::kLong);  // the same place twice, uncoalesced
  const at::Tensor gradient = at::sparse_coo_tensor(indices, at::full({2}, 8.0F), {3});
  const at::Tensor parameter = make_parameter(at::ones({3}), gradient);
  auto optimizer = make_sgd({parameter});
  const StepResult result = scaler.step(optimizer);
  EXPECT_TRUE(result.applied());
  EXPECT_FALSE(parameter.grad().is_coalesced());
  EXPECT_EQ(first(parameter.grad().to_dense()), 4.0F);
  EXPECT_EQ(first(parameter), -3.0F);
}

TEST(Step, AppliesFiniteGradientsAndSkipsOthers) {
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    AmpScaler scaler = make_scaler(4.0);
    const at::Tensor parameter = make_parameter(4.0F);
    auto optimizer = make_sgd({parameter});
    EXPECT_EQ(scaler.step(optimizer).outcome(), StepOutcome::kApplied);
    scaler.update();
    EXPECT_EQ(first(parameter), 0.0F);
    EXPECT_EQ(scaler.get_scale(), 4.0);

    parameter.mutable_grad() = at::tensor({4.0F, bad});
    const StepResult skipped = scaler.step(optimizer);
    EXPECT_EQ(skipped.outcome(), StepOutcome::kSkippedNonfinite);
    EXPECT_FALSE(skipped.applied());
    EXPECT_EQ(skipped.found_inf().item<float>(), 1.0F);
    EXPECT_FALSE(skipped.value().defined());
    scaler.update();
    EXPECT_EQ(first(parameter), 0.0F);
    EXPECT_EQ(scaler.get_scale(), 2.0);
  }
}

TEST(Step, WaitsOnceForAnOrdinaryOptimizer) {
  AmpScaler scaler = make_scaler(4.0);
  auto optimizer = make_sgd({make_parameter(4.0F), make_parameter(2.0F)});
  const std::int64_t before = host_read_count();
  const StepResult result = scaler.step(optimizer);
  scaler.update();
  EXPECT_TRUE(result.applied());
  EXPECT_EQ(host_read_count() - before, 1);
}

TEST(Step, GradientsMadeInfiniteAfterUnscaleStillStep) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(4.0F);
  auto optimizer = make_sgd({parameter});
  scaler.unscale_(optimizer);
  parameter.mutable_grad().fill_(kInfinity);
  EXPECT_TRUE(scaler.step(optimizer).applied());
}

TEST(Update, GrowsAfterTheInterval) {
  AmpScaler scaler = make_scaler(4.0, /*growth_interval=*/2);
  auto optimizer = make_sgd({make_parameter(1.0F)});
  for (const double expected : {4.0, 8.0, 8.0, 16.0}) {
    scaler.step(optimizer);
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), expected);
  }
  EXPECT_EQ(scaler.get_growth_tracker(), 0);
}

TEST(Update, ChangesTheScaleInPlaceAndWithoutWaiting) {
  AmpScaler scaler = make_scaler(4.0);
  auto optimizer = make_sgd({make_parameter(kInfinity)});
  const at::Tensor scale = scaler.scale_tensor();
  scaler.step(optimizer);
  const std::int64_t before = host_read_count();
  scaler.update();
  EXPECT_EQ(host_read_count(), before);
  EXPECT_EQ(scale.item<float>(), 2.0F);
  EXPECT_EQ(scaler.scale_tensor().const_data_ptr(), scale.const_data_ptr());
}

TEST(Update, TakesANewScaleAndDropsWhatWasFound) {
  AmpScaler scaler = make_scaler(4.0);
  auto optimizer = make_sgd({make_parameter(kInfinity)});
  scaler.step(optimizer);
  scaler.update(32.0);
  EXPECT_EQ(scaler.get_scale(), 32.0);
  scaler.update(at::full({}, 16, at::kLong));
  EXPECT_EQ(scaler.get_scale(), 16.0);
  scaler.update(0.0);  // accepted, as by torch
  EXPECT_EQ(scaler.get_scale(), 0.0);
}

TEST(SeveralOptimizers, EachDecidesForItselfAndTheScaleMovesOnce) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor good = make_parameter(4.0F);
  const at::Tensor bad = make_parameter(kInfinity);
  auto first_optimizer = make_sgd({bad});
  auto second_optimizer = make_sgd({good});
  EXPECT_FALSE(scaler.step(first_optimizer).applied());
  EXPECT_TRUE(scaler.step(second_optimizer).applied());
  scaler.update();
  EXPECT_EQ(first(bad), 1.0F);
  EXPECT_EQ(first(good), 0.0F);
  EXPECT_EQ(scaler.get_scale(), 2.0);
}

TEST(SeveralOptimizers, UnscaleWithoutStepCounts) {
  AmpScaler scaler = make_scaler(4.0);
  auto optimizer = make_sgd({make_parameter(kInfinity)});
  scaler.unscale_(optimizer);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 2.0);
}

TEST(Disabled, DoesNothingButRunTheOptimizer) {
  AmpScaler scaler(AmpScalerOptions(at::kCPU).enabled(false));
  const at::Tensor loss = at::ones({});
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  const at::Tensor parameter = make_parameter(1.0F);
  auto optimizer = make_sgd({parameter});
  scaler.unscale_(optimizer);
  const StepResult result = scaler.step(optimizer);
  EXPECT_EQ(result.outcome(), StepOutcome::kDisabled);
  EXPECT_TRUE(result.applied());
  EXPECT_FALSE(result.found_inf().defined());
  scaler.update();
  scaler.update(3.0);
  EXPECT_EQ(first(parameter), 0.0F);
  EXPECT_EQ(scaler.get_scale(), 1.0);
  EXPECT_EQ(scaler.get_growth_tracker(), 0);
}

TEST(Disabled, ForwardsAClosure) {
  AmpScaler scaler(AmpScalerOptions(at::kCPU).enabled(false));
  auto optimizer = make_sgd({make_parameter(1.0F)});
  const StepResult result = scaler.step(optimizer, [] { return at::full({}, 5.0F); });
  EXPECT_EQ(result.value().item<float>(), 5.0F);
}

TEST(Device, CudaWithoutADeviceDisablesItself) {
  if (torch::cuda::is_available()) {
    GTEST_SKIP() << "this machine has a CUDA device";
  }
  AmpScaler scaler{AmpScalerOptions()};
  EXPECT_FALSE(scaler.is_enabled());
}

TEST(Moving, KeepsTheStateOfTheIteration) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  auto optimizer = make_sgd({parameter});
  scaler.unscale_(optimizer);
  AmpScaler moved = std::move(scaler);
  moved.step(optimizer);
  EXPECT_EQ(first(parameter), -1.0F);  // unscaled once
  EXPECT_THROW(scaler.is_enabled(),
               c10::Error);  // NOLINT(bugprone-use-after-move): what it is about
  scaler = std::move(moved);
  EXPECT_TRUE(scaler.is_enabled());
}

}  // namespace
}  // namespace ampscaler
