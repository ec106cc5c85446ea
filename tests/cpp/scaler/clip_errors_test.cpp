// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// What clips and queries refuse, that a refused call changes nothing, and that queries leave no trace.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/ampscaler.h>

#include "cpp/error_text.h"
#include "cpp/scaler/optimizers.h"
#include "cpp/scaler/training.h"

namespace ampscaler {
namespace {

std::string not_scaled(const std::string& method) {
  return "Attempted " + method +
         " but _scale is None.  This may indicate your script did not use scaler.scale(loss or "
         "outputs) earlier in the iteration.";
}

TEST(ClipOrder, BeforeTheFirstScale) {
  AmpScaler scaler(AmpScalerOptions(at::kCPU));
  auto optimizer = make_sgd({make_parameter(1.0F)});
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.clip_grad_norm_(optimizer, 1.0); }),
            not_scaled("clip_grad_norm_"));
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.clip_grad_value_(optimizer, 1.0); }),
            not_scaled("clip_grad_value_"));
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.grad_norm(optimizer); }),
            not_scaled("grad_norm"));
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.is_finite(optimizer); }),
            not_scaled("is_finite"));
  EXPECT_FALSE(scaler.grads_are_scaled(optimizer));
}

TEST(ClipOrder, AfterStep) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  auto optimizer = make_sgd({parameter});
  scaler.step(optimizer);
  EXPECT_EQ(error_text([&] { scaler.clip_grad_norm_(optimizer, 1.0); }),
            "clip_grad_norm_() is being called after step().");
  EXPECT_EQ(error_text([&] { scaler.clip_grad_value_(optimizer, 1.0); }),
            "clip_grad_value_() is being called after step().");
  EXPECT_EQ(first(parameter.grad()), 2.0F);
}

TEST(ClipArguments, OutOfRange) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  auto optimizer = make_sgd({parameter});
  const auto clip = [&](double max_norm, double norm_type, double eps) {
    return error_text<c10::ValueError>(
        [&] { scaler.clip_grad_norm_(optimizer, max_norm, norm_type, eps); });
  };
  const std::string operation = "ampscaler::clip_grad_norm_: ";
  EXPECT_EQ(clip(0.0, 2.0, 0.0), operation + "max_norm: expected a number > 0, got 0.");
  EXPECT_EQ(clip(-1.0, 2.0, 0.0), operation + "max_norm: expected a number > 0, got -1.");
  EXPECT_EQ(clip(kNan, 2.0, 0.0), operation + "max_norm: expected a number > 0, got nan.");
  EXPECT_EQ(clip(1.0, -1.0, 0.0), operation + "norm_type: expected a number >= 0, got -1.");
  EXPECT_EQ(clip(1.0, 2.0, -1.0), operation + "eps: expected a finite number >= 0, got -1.");
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.clip_grad_norm_(optimizer, at::Tensor()); }),
            operation + "max_norm: expected a number or a tensor, got an undefined tensor.");
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.clip_grad_value_(optimizer, -1.0); }),
            "ampscaler::clip_grad_value_: clip_value: expected a number >= 0, got -1.");
  EXPECT_THROW(scaler.clip_grad_norm_(optimizer, at::ones({2})), c10::Error);
  EXPECT_EQ(first(parameter.grad()), 8.0F);
  scaler.unscale_(optimizer);  // still READY
  EXPECT_EQ(first(parameter.grad()), 2.0F);
}

TEST(ClipArguments, AreCheckedWithoutGradientsToo) {
  AmpScaler scaler = make_scaler(4.0);
  auto optimizer = make_sgd({at::ones({2}).requires_grad_()});
  EXPECT_THROW(scaler.clip_grad_norm_(optimizer, 0.0), c10::ValueError);
  EXPECT_THROW(scaler.grad_norm(optimizer, -1.0), c10::ValueError);
}

TEST(ClipArguments, AnOptimizerOrGradientInTwoPlaces) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  auto optimizer = make_sgd({parameter});
  auto another = make_sgd({parameter});
  EXPECT_EQ(
      error_text<c10::ValueError>([&] { scaler.clip_grad_norm_({optimizer, optimizer}, 1.0); }),
      "clip_grad_norm_: optimizers: expected different ones, got number 1 twice.");
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.grad_norm({optimizer, another}); }),
            "grad_norm: optimizers: expected gradients of their own, got optimizer 1 with one of "
            "another optimizer.");
  EXPECT_EQ(first(parameter.grad()), 8.0F);
}

TEST(ClipArguments, NothingIsWrittenIfOneOfSeveralIsRefused) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor good = make_parameter(8.0F);
  const at::Tensor bad = make_parameter(at::ones({2}), at::ones({1}).expand({2}));
  auto first_optimizer = make_sgd({good});
  auto second_optimizer = make_sgd({bad});
  EXPECT_THROW(scaler.clip_grad_norm_({first_optimizer, second_optimizer}, 1.0), c10::Error);
  EXPECT_EQ(first(good.grad()), 8.0F);
  EXPECT_TRUE(scaler.grads_are_scaled(first_optimizer));
  bad.mutable_grad() = at::ones({2}, at::kFloat8_e4m3fn);
  EXPECT_THROW(scaler.clip_grad_norm_({first_optimizer, second_optimizer}, 1.0),
               c10::NotImplementedError);
  EXPECT_EQ(first(good.grad()), 8.0F);
}

TEST(ClipKinds, SparseStridedAndComplexGradients) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor indices = at::tensor({0, 0}, at::kLong).reshape({1, 2});
  const at::Tensor sparse = make_parameter(
      at::ones({2}), at::sparse_coo_tensor(indices, at::tensor({10.0F, 14.0F}), {2}));
  const at::Tensor strided =
      make_parameter(at::ones({2}), at::tensor({32.0F, -1.0F, 0.0F, -1.0F}).slice(0, 0, 4, 2));
  auto optimizer = make_sgd({sparse, strided});
  EXPECT_EQ(first(scaler.clip_grad_norm_(optimizer, 5.0)), 10.0F);  // 24 / 4 and 32 / 4
  EXPECT_EQ(first(sparse.grad().to_dense()), 3.0F);
  EXPECT_EQ(first(strided.grad()), 4.0F);
  const at::Tensor complex = make_parameter(
      at::ones({1}, at::kComplexFloat), at::complex(at::full({1}, 24.0F), at::full({1}, 32.0F)));
  auto of_complex = make_sgd({complex});
  EXPECT_EQ(first(scaler.clip_grad_norm_(of_complex, 5.0)), 10.0F);
  EXPECT_EQ(first(at::imag(complex.grad())), 4.0F);
}

TEST(Queries, LeaveNoTrace) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  auto optimizer = make_sgd({parameter});
  scaler.grad_norm(optimizer);
  EXPECT_TRUE(scaler.is_finite(optimizer).item<bool>());
  EXPECT_TRUE(scaler.grads_are_scaled(optimizer));
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.update(); }),
            "No inf checks were recorded prior to update.");
  parameter.mutable_grad() = at::full({2}, kNan);
  EXPECT_FALSE(scaler.is_finite(optimizer).item<bool>());
  parameter.mutable_grad() = at::full({2}, 8.0F);
  EXPECT_TRUE(scaler.step(optimizer).applied());
}

TEST(Queries, TheRecordedCheckCounts) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(kInfinity);
  auto optimizer = make_sgd({parameter});
  scaler.unscale_(optimizer);
  parameter.mutable_grad() = at::ones({2});
  EXPECT_FALSE(scaler.is_finite(optimizer).item<bool>());
  const at::Tensor answer = scaler.is_finite(optimizer);
  EXPECT_EQ(answer.scalar_type(), at::kBool);
  EXPECT_EQ(answer.dim(), 0);
}

TEST(Queries, FollowTheStages) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(at::ones({2}), at::tensor({24.0F, 32.0F}));
  auto optimizer = make_sgd({parameter});
  auto aware = make_device_skipping({parameter});
  EXPECT_EQ(first(scaler.grad_norm(optimizer)), 10.0F);
  scaler.step(aware);  // leaves gradients alone
  EXPECT_TRUE(scaler.grads_are_scaled(aware));
  EXPECT_EQ(first(scaler.grad_norm(aware)), 10.0F);
  scaler.step(optimizer);
  EXPECT_FALSE(scaler.grads_are_scaled(optimizer));
  EXPECT_EQ(first(scaler.grad_norm(optimizer)), 10.0F);
  scaler.update();
  EXPECT_TRUE(scaler.grads_are_scaled(optimizer));
}

TEST(Unscale, FlagsAnOverflowThatItCauses) {
  AmpScaler scaler = make_scaler(0.25);
  const at::Tensor parameter = make_parameter(3e38F);
  auto optimizer = make_sgd({parameter});
  EXPECT_FALSE(scaler.step(optimizer).applied());
  EXPECT_EQ(first(parameter), 1.0F);
}

TEST(Unscale, FlagsAScaleThatCannotBeDividedBy) {
  AmpScaler scaler = make_scaler(1.0);
  auto optimizer = make_sgd({make_parameter(1.0F)});
  scaler.update(0.0);
  EXPECT_FALSE(scaler.step(optimizer).applied());
}

TEST(Unscale, LeavesVersionsAndSharedMemoryAsTorchDoes) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  const at::Tensor twin = make_parameter(at::ones({2}), parameter.grad().view({2}));
  auto optimizer = make_sgd({parameter});
  parameter.grad().add_(0.0);
  const auto version = parameter.grad()._version();
  scaler.unscale_(optimizer);
  EXPECT_EQ(parameter.grad()._version(), version);
  auto sharing = make_sgd({parameter, twin});
  scaler.unscale_(sharing);  // a view is another gradient: torch divides through both
  EXPECT_EQ(first(parameter.grad()), 0.125F);
}

}  // namespace
}  // namespace ampscaler
