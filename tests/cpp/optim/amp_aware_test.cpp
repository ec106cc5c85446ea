// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Optimizers that take scale and flag as tensors and skip on the device: nothing waits.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/ampscaler.h>

#include "cpp/error_text.h"
#include "cpp/scaler/optimizers.h"
#include "cpp/scaler/training.h"

namespace ampscaler {
namespace {

TEST(AmpAware, StepsWithoutWaitingAndReportsOnDemand) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  DeviceSkipping optimizer({parameter}, torch::optim::SGDOptions(1.0));
  const std::int64_t before = host_read_count();
  const StepResult applied = scaler.step(optimizer);
  scaler.update();
  parameter.mutable_grad() = at::full({2}, kNan);
  const StepResult skipped = scaler.step(optimizer);
  scaler.update();
  EXPECT_EQ(host_read_count(), before);
  EXPECT_TRUE(applied.applied());
  EXPECT_FALSE(skipped.applied());
  EXPECT_FALSE(skipped.applied());  // read once, then known
  EXPECT_EQ(host_read_count(), before + 2);
  EXPECT_EQ(first(parameter), -1.0F);
  EXPECT_EQ(scaler.get_scale(), 2.0);
}

TEST(AmpAware, GetsNoScaleAfterAnExplicitUnscale) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  DeviceSkipping optimizer({parameter}, torch::optim::SGDOptions(1.0));
  scaler.unscale_(optimizer);
  scaler.step(optimizer);
  EXPECT_EQ(first(parameter), -1.0F);
}

TEST(AmpAware, IsNotSteppedWithGradientsThatCameAfterUnscale) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = at::ones({2}).requires_grad_();
  DeviceSkipping optimizer({parameter}, torch::optim::SGDOptions(1.0));
  scaler.unscale_(optimizer);  // no gradient yet: nothing to divide
  parameter.mutable_grad() = at::full({2}, 8.0F);
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.step(optimizer); }),
            "No inf checks were recorded for this optimizer.");
  EXPECT_EQ(first(parameter), 1.0F);
}

TEST(AmpAware, IsNotSteppedWithoutGradients) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = at::ones({2}).requires_grad_();
  DeviceSkipping optimizer({parameter}, torch::optim::SGDOptions(1.0));
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.step(optimizer); }),
            "No inf checks were recorded for this optimizer.");
  parameter.mutable_grad() = at::full({2}, 8.0F);
  EXPECT_TRUE(scaler.step(optimizer).applied());
}

TEST(AmpAware, GradientsAreOnlyRead) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  DeviceSkipping optimizer({parameter}, torch::optim::SGDOptions(1.0));
  const auto version = parameter.grad()._version();
  scaler.step(optimizer);
  EXPECT_EQ(parameter.grad()._version(), version);
  EXPECT_EQ(first(parameter.grad()), 8.0F);
}

TEST(AmpAware, AUsersFactorIsPartOfTheScaleItGets) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(16.0F);
  DeviceSkipping optimizer({parameter}, torch::optim::SGDOptions(1.0));
  UnsureAdapter adapter(optimizer);
  adapter.user = at::full({}, 2.0);
  scaler.step(adapter);
  EXPECT_EQ(first(parameter), -1.0F);  // 1 - 16 / (4 * 2)
}

TEST(AmpAware, AFactorThatIsOfNoUseIsASkipAndBacksOff) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(16.0F);
  DeviceSkipping optimizer({parameter}, torch::optim::SGDOptions(1.0));
  UnsureAdapter adapter(optimizer);
  adapter.user = at::zeros({});
  EXPECT_FALSE(scaler.step(adapter).applied());
  scaler.update();
  EXPECT_EQ(first(parameter), 1.0F);
  EXPECT_EQ(scaler.get_scale(), 2.0);
}

// An optimizer that uses the flag it was handed as scratch memory.
class OverwritesTheFlag : public DeviceSkipping {
 public:
  using DeviceSkipping::DeviceSkipping;
  at::Tensor step_amp(const std::optional<at::Tensor>& grad_scale,
                      const at::Tensor& found_inf) override {
    found_inf.fill_(1.0F);
    return DeviceSkipping::step_amp(grad_scale, found_inf);
  }
};

TEST(AmpAware, CannotChangeWhatUpdateSees) {
  AmpScaler scaler = make_scaler(4.0);
  OverwritesTheFlag optimizer({make_parameter(8.0F)}, torch::optim::SGDOptions(1.0));
  scaler.step(optimizer);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 4.0);
  EXPECT_EQ(scaler.get_growth_tracker(), 1);
}

}  // namespace
}  // namespace ampscaler
