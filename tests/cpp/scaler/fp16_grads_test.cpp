// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Who may have float16 gradients, under the three settings; and that clipping them in place rounds once.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/ampscaler.h>

#include "cpp/error_text.h"
#include "cpp/scaler/optimizers.h"
#include "cpp/scaler/training.h"

namespace ampscaler {
namespace {

const char* const kRefusal = "Attempting to unscale FP16 gradients.";

AmpScaler make_half_scaler(Fp16Grads setting, double scale = 4.0) {
  AmpScaler scaler(AmpScalerOptions(at::kCPU).init_scale(scale).fp16_grads(setting));
  scaler.scale(at::ones({}));
  return scaler;
}

at::Tensor half_parameter(const std::vector<float>& gradient) {
  const at::Tensor values = at::tensor(gradient).to(at::kHalf);
  return make_parameter(at::ones_like(values), values);
}

TEST(Fp16Grads, ByDefaultNoOneMayHaveThemUnscaledOrClipped) {
  EXPECT_EQ(AmpScalerOptions().fp16_grads(), Fp16Grads::kError);
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = half_parameter({24.0F, 32.0F});
  auto ordinary = make_sgd({parameter});
  auto aware = make_device_skipping({parameter});
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.clip_grad_norm_(ordinary, 1.0); }), kRefusal);
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.clip_grad_norm_(aware, 1.0); }), kRefusal);
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.clip_grad_value_(aware, 1.0); }), kRefusal);
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.step(ordinary); }), kRefusal);
  EXPECT_EQ(first(scaler.grad_norm(ordinary)), 10.0F);  // reading is harmless
  EXPECT_TRUE(scaler.step(aware).applied());            // as in torch
  EXPECT_EQ(first(parameter), -5.0F);
}

TEST(Fp16Grads, InOptimizerIsForThoseThatUnscaleThemselves) {
  AmpScaler scaler = make_half_scaler(Fp16Grads::kInOptimizer);
  const at::Tensor parameter = half_parameter({24.0F, 32.0F});
  auto ordinary = make_sgd({parameter});
  auto aware = make_device_skipping({parameter});
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.clip_grad_norm_(ordinary, 1.0); }), kRefusal);
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.unscale_(aware); }), kRefusal);
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.clip_grad_value_(aware, 1.0); }), kRefusal);
  EXPECT_EQ(first(scaler.clip_grad_norm_(aware, 5.0)), 10.0F);
  scaler.step(aware);
  EXPECT_EQ(first(parameter), -2.0F);
}

TEST(Fp16Grads, InPlaceIsForAll) {
  AmpScaler scaler = make_half_scaler(Fp16Grads::kInPlace);
  const at::Tensor unscaled = half_parameter({24.0F, 32.0F});
  const at::Tensor clipped = half_parameter({24.0F, 32.0F});
  const at::Tensor clamped = half_parameter({24.0F, 32.0F});
  auto first_optimizer = make_sgd({unscaled});
  auto second_optimizer = make_sgd({clipped});
  auto third_optimizer = make_device_skipping({clamped});
  scaler.unscale_(first_optimizer);
  EXPECT_EQ(first(unscaled.grad()), 6.0F);
  EXPECT_EQ(first(scaler.clip_grad_norm_(second_optimizer, 5.0)), 10.0F);
  EXPECT_EQ(first(clipped.grad()), 3.0F);
  scaler.clip_grad_value_(third_optimizer, 2.0);
  EXPECT_EQ(first(clamped.grad()), 2.0F);
  EXPECT_TRUE(scaler.step(second_optimizer).applied());
  EXPECT_EQ(first(clipped), -2.0F);
}

// All positive float16 values that stay normal: one multiplication and one rounding, in float64.
TEST(Fp16Grads, UnscaleAndClipRoundOnce) {
  const double scale = 37.0;
  const at::Tensor stored = at::arange(1.0, 2048.0, 1.0, at::kFloat).to(at::kHalf);
  AmpScaler scaler = make_half_scaler(Fp16Grads::kInPlace, scale);
  const at::Tensor parameter = make_parameter(at::ones_like(stored), stored.clone());
  auto optimizer = make_sgd({parameter});
  const double norm = stored.to(at::kDouble).norm().item<double>() / scale;
  const double max_norm = norm / 3.0;
  scaler.clip_grad_norm_(optimizer, max_norm);
  const auto inverse = static_cast<double>(static_cast<float>(1.0 / scale));
  const auto factor = static_cast<double>(static_cast<float>(inverse * (max_norm / norm)));
  const at::Tensor once = (stored.to(at::kDouble) * factor).to(at::kHalf);
  const at::Tensor twice =
      ((stored.to(at::kDouble) * inverse).to(at::kHalf).to(at::kDouble) * (max_norm / norm))
          .to(at::kHalf);
  EXPECT_TRUE(parameter.grad().equal(once));
  EXPECT_FALSE(once.equal(twice));  // so that the comparison means something
}

TEST(Fp16Grads, NonfiniteOnesAreLeftAloneByAClip) {
  AmpScaler scaler = make_half_scaler(Fp16Grads::kInPlace);
  const at::Tensor parameter = half_parameter({24.0F, kInfinity});
  auto optimizer = make_sgd({parameter});
  scaler.clip_grad_norm_(optimizer, 5.0);
  EXPECT_EQ(first(parameter.grad()), 24.0F);
  EXPECT_FALSE(scaler.step(optimizer).applied());
  EXPECT_EQ(first(parameter), 1.0F);
}

// float16 ends at 65504: 60000 / 0.25 is none of it.
TEST(Fp16Grads, AnOverflowByUnscalingIsASkip) {
  for (const bool clip : {false, true}) {
    AmpScaler scaler = make_half_scaler(Fp16Grads::kInPlace, 0.25);
    const at::Tensor parameter = half_parameter({60000.0F, 1.0F});
    auto optimizer = make_sgd({parameter});
    if (clip) {
      scaler.clip_grad_norm_(optimizer, 1e6);
    }
    EXPECT_FALSE(scaler.step(optimizer).applied());
    EXPECT_EQ(first(parameter), 1.0F);
  }
}

}  // namespace
}  // namespace ampscaler
