// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// What C++ users of mixed precision reported to other projects, as tests. The issue numbers tell
// where.

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <ampscaler/ampscaler.h>

#include "cpp/scaler/training.h"

namespace ampscaler {
namespace {

// pytorch/pytorch#44710, NVIDIA/apex#1021: scaling from C++ alone gives the unscaled run, bit for
// bit.
TEST(UserReports, TheScaledRunEqualsTheUnscaledRun) {
  torch::manual_seed(4);
  torch::nn::Linear scaled_model(torch::nn::LinearOptions(4, 1).bias(false));
  const at::Tensor before = scaled_model->weight.detach().clone();
  auto optimizer = make_sgd(scaled_model->parameters(), 0.1);
  AmpScaler scaler(AmpScalerOptions(at::kCPU).init_scale(65536.0));
  scaler.scale(scaled_model->forward(at::ones({1, 4})).sum()).backward();
  scaler.step(optimizer);
  scaler.update();

  const at::Tensor plain = before.clone().requires_grad_();
  auto plain_optimizer = make_sgd({plain}, 0.1);
  at::linear(at::ones({1, 4}), plain).sum().backward();
  plain_optimizer.step();
  EXPECT_TRUE(at::equal(scaled_model->weight, plain));
}

// pytorch/pytorch#46649: a weight changed between two guards is seen by the second.
TEST(UserReports, TheWeightCacheEndsWithTheGuard) {
  const at::Tensor weight = at::ones({4, 4}).requires_grad_();
  const auto product = [&] {
    const AutocastGuard autocast(at::kCPU, at::kBFloat16);
    return first(at::mm(at::ones({4, 4}), weight));
  };
  EXPECT_EQ(product(), 4.0F);
  {
    const at::NoGradGuard no_grad;
    weight.mul_(10);
  }
  EXPECT_EQ(product(), 40.0F);
}

// pytorch/pytorch#111559: works on a CPU-only build, checks hold in a release build, and a step
// that returned nothing can be told from a skipped one.
TEST(UserReports, ACpuProgramUnscalesAndSeesTheSkip) {
  AmpScaler scaler = make_scaler(2.0);
  const at::Tensor parameter = make_parameter(at::ones({2}), at::tensor({1.0F, kInfinity}));
  auto optimizer = make_sgd({parameter});
  scaler.unscale_(optimizer);
  EXPECT_EQ(parameter.grad()[0].item<float>(), 0.5F);
  EXPECT_EQ(parameter.grad()[1].item<float>(), kInfinity);
  const StepResult skipped = scaler.step(optimizer);
  EXPECT_FALSE(skipped.value().defined());
  EXPECT_FALSE(skipped.applied());
  EXPECT_EQ(skipped.found_inf().item<float>(), 1.0F);
  scaler.update();
  parameter.mutable_grad() = at::ones({2});
  const StepResult applied = scaler.step(optimizer);
  EXPECT_FALSE(applied.value().defined());
  EXPECT_TRUE(applied.applied());
}

}  // namespace
}  // namespace ampscaler
