// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Defects found in home-made C++ loss scalers and training programs, each as a test that this
// library does not have it.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/ampscaler.h>

#include "cpp/error_text.h"
#include "cpp/scaler/training.h"

namespace ampscaler {
namespace {

TEST(KnownDefects, AGroupIsUnscaledOncePerGroupThatFollows) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor first_parameter = make_parameter(8.0F);
  const at::Tensor second_parameter = make_parameter(8.0F);
  torch::optim::SGD optimizer({torch::optim::OptimizerParamGroup({first_parameter}),
                               torch::optim::OptimizerParamGroup({second_parameter})},
                              torch::optim::SGDOptions(1.0));
  scaler.unscale_(optimizer);
  EXPECT_EQ(first(first_parameter.grad()), 2.0F);
  EXPECT_EQ(first(second_parameter.grad()), 2.0F);
}

TEST(KnownDefects, TwoDevicesOfOneTypeShareAFlag) {
  GradientGroups groups;  // the devices are made up, so this needs none
  groups.add(at::Device(at::kCUDA, 0), at::kFloat, at::ones({1}), true);
  groups.add(at::Device(at::kCUDA, 1), at::kFloat, at::ones({1}), true);
  groups.add(at::Device(at::kCUDA, 0), at::kHalf, at::ones({1}), true);
  ASSERT_EQ(groups.groups().size(), 2U);
  EXPECT_EQ(groups.groups()[0].device, at::Device(at::kCUDA, 0));
  EXPECT_EQ(groups.groups()[0].dtypes.size(), 2U);
  EXPECT_EQ(groups.groups()[1].device, at::Device(at::kCUDA, 1));
}

TEST(KnownDefects, AGetterReturnsNothing) {
  const AmpScaler scaler = make_scaler(4.0, 9);
  EXPECT_EQ(scaler.get_scale(), 4.0);
  EXPECT_EQ(scaler.get_growth_factor(), 2.0);
  EXPECT_EQ(scaler.get_backoff_factor(), 0.5);
  EXPECT_EQ(scaler.get_growth_interval(), 9);
  EXPECT_EQ(scaler.get_growth_tracker(), 0);
  EXPECT_TRUE(scaler.is_enabled());
}

TEST(KnownDefects, ChecksVanishInReleaseBuilds) {
#ifndef NDEBUG
  FAIL() << "this test must be compiled with NDEBUG";
#endif
  AmpScaler scaler(AmpScalerOptions(at::kCPU));
  auto optimizer = make_sgd({make_parameter(1.0F)});
  EXPECT_THROW(scaler.step(optimizer), AssertionError);
}

TEST(KnownDefects, ScalingIsSwitchedOffWhereCudaIsAbsent) {
  AmpScaler scaler(AmpScalerOptions(at::kCPU).init_scale(16.0));
  EXPECT_TRUE(scaler.is_enabled());
  EXPECT_EQ(first(scaler.scale(at::ones({1}))), 16.0F);
}

TEST(KnownDefects, ClassesLiveInANamespaceOfTorch) {
  static_assert(std::is_same_v<::ampscaler::AmpScaler, AmpScaler>);
  EXPECT_EQ(c10::demangle(typeid(AmpScaler).name()), "ampscaler::AmpScaler");
}

TEST(KnownDefects, TheScaleRestartsAfterAResume) {
  AmpScaler before = make_scaler(65536.0);
  auto optimizer = make_sgd({make_parameter(kInfinity)});
  before.step(optimizer);
  before.update();
  AmpScaler after(AmpScalerOptions(at::kCPU));
  after.load_state_dict(before.state_dict());
  EXPECT_EQ(after.get_scale(), 32768.0);
}

TEST(KnownDefects, ThereAreNoStages) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  auto optimizer = make_sgd({parameter});
  EXPECT_THROW(scaler.update(), AssertionError);
  scaler.unscale_(optimizer);
  EXPECT_THROW(scaler.unscale_(optimizer), c10::Error);
  EXPECT_EQ(first(parameter.grad()), 2.0F);
}

TEST(KnownDefects, TheFlagIsOnAnotherDeviceThanTheGradients) {
  AmpScaler scaler = make_scaler(4.0);
  auto optimizer = make_sgd({make_parameter(1.0F)});
  const StepResult result = scaler.step(optimizer);
  EXPECT_EQ(result.found_inf().device(), scaler.scale_tensor().device());
  EXPECT_EQ(result.found_inf().dim(), 0);
}

// The guard's own tests show that the cache is cleared; this is the leak of the dtype.
TEST(KnownDefects, TheAutocastGuardLeaksItsDtype) {
  {
    const AutocastGuard half(at::kCPU, at::kHalf);
  }
  const AutocastGuard by_default(at::kCPU);
  EXPECT_EQ(at::mm(at::ones({1, 1}), at::ones({1, 1})).scalar_type(), at::kBFloat16);
}

TEST(KnownDefects, AnOverflowInOneOptimizerSkipsBothOrBacksOffTwice) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor good = make_parameter(4.0F);
  auto overflowing = make_sgd({make_parameter(kInfinity)});
  auto also_overflowing = make_sgd({make_parameter(kNan)});
  auto finite = make_sgd({good});
  scaler.step(overflowing);
  scaler.step(finite);
  scaler.step(also_overflowing);
  scaler.update();
  EXPECT_EQ(first(good), 0.0F);
  EXPECT_EQ(scaler.get_scale(), 2.0);
}

TEST(KnownDefects, AParameterListedTwiceIsUnscaledTwice) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  torch::optim::SGD optimizer({torch::optim::OptimizerParamGroup({parameter, parameter}),
                               torch::optim::OptimizerParamGroup({parameter})},
                              torch::optim::SGDOptions(1.0));
  scaler.unscale_(optimizer);
  EXPECT_EQ(first(parameter.grad()), 2.0F);
}

TEST(KnownDefects, AnOptimizerAtAReusedAddressInheritsTheStage) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor old_parameter = make_parameter(8.0F);
  const at::Tensor new_parameter = make_parameter(8.0F);
  auto optimizer = make_sgd({old_parameter});
  scaler.step(optimizer);
  optimizer = make_sgd({new_parameter});  // another optimizer, same address
  EXPECT_TRUE(scaler.step(optimizer).applied());
  EXPECT_EQ(first(new_parameter), -1.0F);
}

TEST(KnownDefects, AnOverflowOfAnOptimizerThatIsGoneIsForgotten) {
  AmpScaler scaler = make_scaler(4.0);
  auto optimizer = make_sgd({make_parameter(kInfinity)});
  scaler.step(optimizer);
  optimizer = make_sgd({make_parameter(8.0F)});  // another optimizer, same address
  scaler.step(optimizer);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 2.0);
}

// As some wrappers do: the whole protocol of the next iteration runs inside a step.
TEST(KnownDefects, AnUpdateWithinAStepLeavesAStaleStage) {
  class Updating : public torch::optim::SGD {
   public:
    using SGD::SGD;
    at::Tensor step(LossClosure /*closure*/ = nullptr) override {
      scaler->update();
      return {};
    }
    AmpScaler* scaler = nullptr;
  };
  AmpScaler scaler = make_scaler(4.0);
  Updating optimizer({make_parameter(8.0F)}, torch::optim::SGDOptions(1.0));
  optimizer.scaler = &scaler;
  scaler.step(optimizer);
  EXPECT_TRUE(scaler.step(optimizer).applied());
}

}  // namespace
}  // namespace ampscaler
