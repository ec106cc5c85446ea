// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// AmpScaler under a ScalePolicy: the limits hold at every moment, and the scale tensor stays the same
// object.

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <ampscaler/ampscaler.h>

#include "cpp/error_text.h"

namespace ampscaler {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

AmpScaler make_scaler(double init_scale, const ScalePolicy& policy) {
  return AmpScaler(
      AmpScalerOptions(torch::kCPU).init_scale(init_scale).growth_interval(1).policy(policy));
}

// One iteration with a gradient of `value`; whether the optimizer ran.
bool iterate(AmpScaler& scaler, float value) {
  const torch::Tensor parameter = torch::ones({1}, torch::requires_grad());
  torch::optim::SGD optimizer({parameter}, 0.5);
  scaler.scale(torch::ones({}));
  parameter.mutable_grad() = torch::full({1}, value);
  const bool applied = scaler.step(optimizer).applied();
  scaler.update();
  return applied;
}

TEST(ScalePolicy, ChecksItsLimitsAndKeepsTheOldOnesAfterAnError) {
  ScalePolicy policy = ScalePolicy().min_scale(2).max_scale(8);
  EXPECT_EQ(error_text([&] { policy.min_scale(16); }),
            "ScalePolicy: min_scale: expected at most max_scale = 8, got 16");
  EXPECT_EQ(error_text([&] { policy.max_scale(0x1p127); }),
            "ScalePolicy: max_scale: expected a value in [2^-126, 2^126], got 1.70141e+38");
  EXPECT_THROW(policy.min_scale(0.0), c10::ValueError);
  EXPECT_THROW(policy.max_scale(1.0), c10::ValueError);
  EXPECT_EQ(policy, ScalePolicy().min_scale(2).max_scale(8));
  EXPECT_EQ(policy.min_scale(std::nullopt), ScalePolicy().max_scale(8));
}

TEST(ScalePolicy, ClampsNumbersAndTensors) {
  const ScalePolicy policy = ScalePolicy().min_scale(2).max_scale(8);
  EXPECT_EQ(policy.clamp(1.0), 2.0);
  EXPECT_EQ(policy.clamp(3.0), 3.0);
  EXPECT_EQ(policy.clamp(std::numeric_limits<double>::infinity()), 8.0);
  EXPECT_THROW(policy.clamp(kNan), c10::ValueError);
  EXPECT_TRUE(std::isnan(ScalePolicy().clamp(kNan)));
  EXPECT_EQ(policy.clamp(torch::full({}, 9.0F)).item<float>(), 8.0F);
}

TEST(AmpScalerPolicy, TheFirstScaleIsClamped) {
  EXPECT_EQ(make_scaler(65536, ScalePolicy().max_scale(1024)).get_scale(), 1024.0);
  AmpScaler scaler = make_scaler(1, ScalePolicy().min_scale(4));
  EXPECT_EQ(scaler.get_scale(), 4.0);
  EXPECT_EQ(scaler.scale(torch::ones({})).item<float>(), 4.0F);
}

TEST(AmpScalerPolicy, TheFloorIsReachedAfterSixteenSkipsAndLeftAgain) {
  AmpScaler scaler = make_scaler(65536, ScalePolicy().min_scale(1));
  for (int skip = 1; skip <= 200; ++skip) {
    EXPECT_FALSE(iterate(scaler, kInfinity));
    EXPECT_EQ(scaler.get_scale(), skip < 16 ? std::ldexp(65536.0, -skip) : 1.0) << skip;
  }
  EXPECT_TRUE(iterate(scaler, 1.0F));
  EXPECT_EQ(scaler.get_scale(), 2.0);
}

TEST(AmpScalerPolicy, TheCapIsReachedAtStepEightAndKept) {
  AmpScaler scaler = make_scaler(65536, ScalePolicy().max_scale(0x1p24));
  scaler.scale(torch::ones({}));
  const torch::Tensor scale = scaler.scale_tensor();
  for (int step = 1; step <= 130; ++step) {
    EXPECT_TRUE(iterate(scaler, 1.0F));
    EXPECT_EQ(scale.item<double>(), std::min(std::ldexp(65536.0, step), 0x1p24)) << step;
  }
  EXPECT_TRUE(scale.is_same(scaler.scale_tensor()));
}

TEST(AmpScalerPolicy, NewScalesAreClampedInPlace) {
  AmpScaler scaler = make_scaler(16, ScalePolicy().min_scale(2).max_scale(64));
  scaler.scale(torch::ones({}));
  const torch::Tensor scale = scaler.scale_tensor();
  scaler.update(1e30);
  EXPECT_EQ(scaler.get_scale(), 64.0);
  scaler.update(std::numeric_limits<double>::infinity());
  EXPECT_EQ(scaler.get_scale(), 64.0);
  scaler.update(0.0);
  EXPECT_EQ(scaler.get_scale(), 2.0);
  scaler.update(torch::full({}, 1e6F));
  EXPECT_EQ(scaler.get_scale(), 64.0);
  EXPECT_THROW(scaler.update(kNan), c10::ValueError);
  EXPECT_EQ(scaler.get_scale(), 64.0);
  EXPECT_TRUE(scale.is_same(scaler.scale_tensor()));
}

TEST(AmpScalerPolicy, LoadedScalesAreClamped) {
  AmpScaler source = make_scaler(65536, ScalePolicy());
  AmpScaler before_first_loss = make_scaler(4, ScalePolicy().max_scale(64));
  before_first_loss.load_state_dict(source.state_dict());
  EXPECT_EQ(before_first_loss.get_scale(), 64.0);
  AmpScaler in_use = make_scaler(4, ScalePolicy().max_scale(64));
  in_use.scale(torch::ones({}));
  in_use.load_state_dict(source.state_dict());
  EXPECT_EQ(in_use.get_scale(), 64.0);
  EXPECT_EQ(in_use.policy(), ScalePolicy().max_scale(64));
}

TEST(AmpScalerPolicy, AScaleWrittenByOthersIsBroughtBackByTheNextUpdate) {
  AmpScaler scaler = make_scaler(4, ScalePolicy().max_scale(64));
  scaler.scale(torch::ones({}));
  scaler.scale_tensor().fill_(1e9F);
  iterate(scaler, kInfinity);
  EXPECT_EQ(scaler.get_scale(), 64.0);
}

}  // namespace
}  // namespace ampscaler
