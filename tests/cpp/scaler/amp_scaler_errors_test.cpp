// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Calls that AmpScaler refuses: type and text of the error, and that nothing has changed
// afterwards.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/ampscaler.h>

#include "cpp/error_text.h"
#include "cpp/scaler/training.h"

namespace ampscaler {
namespace {

const char* const kNewScaleText =
    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
    "requires_grad=False.";

std::string not_scaled(const std::string& method) {
  return "Attempted " + method +
         " but _scale is None.  This may indicate your script did not use scaler.scale(loss or "
         "outputs) earlier in the "
         "iteration.";
}

TEST(WrongOrder, BeforeTheFirstScale) {
  AmpScaler scaler(AmpScalerOptions(at::kCPU));
  auto optimizer = make_sgd({make_parameter(1.0F)});
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.unscale_(optimizer); }),
            not_scaled("unscale_"));
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.step(optimizer); }), not_scaled("step"));
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.update(); }), not_scaled("update"));
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.update(2.0); }), not_scaled("update"));
}

TEST(WrongOrder, UnscaleTwiceOrAfterStep) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  auto optimizer = make_sgd({parameter});
  scaler.unscale_(optimizer);
  EXPECT_EQ(error_text([&] { scaler.unscale_(optimizer); }),
            "unscale_() has already been called on this optimizer since the last update().");
  EXPECT_EQ(first(parameter.grad()), 2.0F);
  scaler.step(optimizer);
  EXPECT_EQ(error_text([&] { scaler.unscale_(optimizer); }),
            "unscale_() is being called after step().");
  EXPECT_EQ(error_text([&] { scaler.step(optimizer); }),
            "step() has already been called since the last update().");
  EXPECT_EQ(first(parameter), -1.0F);
}

TEST(WrongOrder, UpdateWithoutAStep) {
  AmpScaler scaler = make_scaler(4.0);
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.update(); }),
            "No inf checks were recorded prior to update.");
}

TEST(NoGradients, StepIsRefused) {
  AmpScaler scaler = make_scaler(4.0);
  auto optimizer = make_sgd({at::ones({2}).requires_grad_()});
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.step(optimizer); }),
            "No inf checks were recorded for this optimizer.");
}

TEST(Closures, AreRefusedWhileEnabled) {
  AmpScaler scaler = make_scaler(4.0);
  auto optimizer = make_sgd({make_parameter(1.0F)});
  EXPECT_EQ(error_text([&] { scaler.step(optimizer, [] { return at::Tensor(); }); }),
            "Closure use is not currently supported if GradScaler is enabled.");
}

TEST(Gradients, HalfIsRefusedBeforeAnythingIsWritten) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor single = make_parameter(8.0F);
  const at::Tensor half = make_parameter(at::ones({2}, at::kHalf), at::ones({2}, at::kHalf));
  auto optimizer = make_sgd({single, half});
  EXPECT_EQ(error_text<c10::ValueError>([&] { scaler.unscale_(optimizer); }),
            "Attempting to unscale FP16 gradients.");
  EXPECT_EQ(first(single.grad()), 8.0F);
}

TEST(Gradients, ComplexIsRefusedBeforeAnythingIsWritten) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor single = make_parameter(8.0F);
  const at::Tensor complex =
      make_parameter(at::ones({2}, at::kComplexFloat), at::ones({2}, at::kComplexFloat));
  auto optimizer = make_sgd({single, complex});
  EXPECT_THROW(scaler.unscale_(optimizer), c10::NotImplementedError);
  EXPECT_EQ(first(single.grad()), 8.0F);
}

TEST(NewScale, TensorsThatTorchRefusesAreRefused) {
  AmpScaler scaler = make_scaler(4.0);
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.update(at::ones({2})); }), kNewScaleText);
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.update(at::ones({}).requires_grad_()); }),
            kNewScaleText);
  EXPECT_EQ(error_text<AssertionError>([&] { scaler.update(at::ones({}, at::kMeta)); }),
            kNewScaleText);
  EXPECT_EQ(error_text([&] { scaler.update(at::ones({1})); }),
            "output with shape [] doesn't match the broadcast shape [1]");
  EXPECT_EQ(error_text([&] { scaler.update(1e39); }),
            "value cannot be converted to type float without overflow");
  EXPECT_EQ(scaler.get_scale(), 4.0);
}

TEST(Options, BadNumbersAreRefusedByNameAndLeaveTheOptionsAlone) {
  AmpScalerOptions options(at::kCPU);
  EXPECT_EQ(error_text<c10::ValueError>([&] { options.init_scale(0.0); }),
            "init_scale: expected a positive finite float32 value, got 0");
  EXPECT_EQ(error_text<AssertionError>([&] { options.growth_factor(1.0); }),
            "The growth factor must be > 1.0.");
  EXPECT_EQ(error_text<AssertionError>([&] { options.backoff_factor(1.0); }),
            "The backoff factor must be < 1.0.");
  EXPECT_EQ(error_text<c10::ValueError>([&] { options.growth_interval(0); }),
            "growth_interval: expected an integer >= 1, got 0");
  EXPECT_EQ(options.init_scale(), 65536.0);
  EXPECT_EQ(options.growth_factor(), 2.0);
  EXPECT_EQ(options.backoff_factor(), 0.5);
  EXPECT_EQ(options.growth_interval(), 2000);
}

TEST(Setters, CheckLikeTheOptions) {
  AmpScaler scaler = make_scaler(4.0);
  EXPECT_THROW(scaler.set_growth_factor(0.5), AssertionError);
  EXPECT_THROW(scaler.set_backoff_factor(kNan), AssertionError);
  EXPECT_THROW(scaler.set_growth_interval(-1), c10::ValueError);
  EXPECT_EQ(scaler.get_growth_factor(), 2.0);
  scaler.set_growth_factor(4.0);
  EXPECT_EQ(scaler.get_growth_factor(), 4.0);
}

// An optimizer whose first step throws.
class Moody : public torch::optim::SGD {
 public:
  using SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    TORCH_CHECK(calls++ > 0, "not today");
    return SGD::step(std::move(closure));
  }
  int calls = 0;
};

TEST(RaisingOptimizer, ARetryDoesNotDivideAgain) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = make_parameter(8.0F);
  Moody optimizer({parameter}, torch::optim::SGDOptions(1.0));
  EXPECT_THROW(scaler.step(optimizer), c10::Error);
  EXPECT_TRUE(scaler.step(optimizer).applied());
  EXPECT_EQ(first(parameter), -1.0F);
}

}  // namespace
}  // namespace ampscaler
