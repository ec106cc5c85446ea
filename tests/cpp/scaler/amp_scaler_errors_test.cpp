// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Calls that AmpScaler refuses: type and text of the error, and that nothing has changed
// afterwards.

#include <thread>

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

// What our kernel or aten would refuse in the middle of the list is refused before the first write.
TEST(Gradients, NothingIsWrittenWhenALaterOneIsRefused) {
  const std::vector<at::Tensor> bad_gradients{
      at::ones({1}).expand({2}), at::ones({2}, at::kFloat8_e4m3fn), at::_neg_view(at::ones({2})),
      at::ones({2, 2}).to_sparse_csr()};
  for (const at::Tensor& bad_gradient : bad_gradients) {
    AmpScaler scaler = make_scaler(4.0);
    const at::Tensor good = make_parameter(8.0F);
    const at::Tensor bad = make_parameter(at::ones_like(bad_gradient), bad_gradient);
    auto optimizer = make_sgd({good, bad});
    EXPECT_THROW(scaler.step(optimizer), c10::Error);
    EXPECT_EQ(first(good.grad()), 8.0F);
    bad.mutable_grad() = at::Tensor();
    EXPECT_TRUE(scaler.step(optimizer).applied());
    EXPECT_EQ(first(good), -1.0F);
  }
}

TEST(NoGradients, AFailedStepLeavesNoTrace) {
  AmpScaler scaler = make_scaler(4.0);
  const at::Tensor parameter = at::ones({2}).requires_grad_();
  auto optimizer = make_sgd({parameter});
  EXPECT_THROW(scaler.step(optimizer), AssertionError);
  parameter.mutable_grad() = at::full({2}, 8.0F);
  EXPECT_TRUE(scaler.step(optimizer).applied());
  EXPECT_EQ(first(parameter), -1.0F);
}

TEST(Threads, ASecondThreadIsRefused) {
  AmpScaler scaler = make_scaler(4.0);
  class Slow : public torch::optim::SGD {
   public:
    using SGD::SGD;
    at::Tensor step(LossClosure /*closure*/ = nullptr) override {
      std::thread([this] { text = error_text([this] { scaler->update(2.0); }); }).join();
      scaler->get_scale();
      return {};
    }
    AmpScaler* scaler = nullptr;
    std::string text;
  };
  Slow optimizer({make_parameter(8.0F)}, torch::optim::SGDOptions(1.0));
  optimizer.scaler = &scaler;
  scaler.step(optimizer);
  EXPECT_EQ(optimizer.text, "AmpScaler is used by two threads at once; it is not thread-safe.");
  scaler.update(2.0);
  EXPECT_EQ(scaler.get_scale(), 2.0);
}

TEST(Options, ADeviceWithoutValuesIsRefused) {
  EXPECT_EQ(error_text<c10::ValueError>([] { AmpScaler{AmpScalerOptions(at::kMeta)}; }),
            "AmpScaler: device: expected a device that holds values, got meta");
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
            "AmpScaler: init_scale: expected a positive finite float32 value, got 0");
  EXPECT_EQ(error_text<AssertionError>([&] { options.growth_factor(1.0); }),
            "The growth factor must be > 1.0.");
  EXPECT_EQ(error_text<AssertionError>([&] { options.backoff_factor(1.0); }),
            "The backoff factor must be < 1.0.");
  EXPECT_EQ(error_text<c10::ValueError>([&] { options.growth_interval(0); }),
            "AmpScaler: growth_interval: expected an integer >= 1, got 0");
  EXPECT_EQ(options.init_scale(), 65536.0);
  EXPECT_EQ(options.growth_factor(), 2.0);
  EXPECT_EQ(options.backoff_factor(), 0.5);
  EXPECT_EQ(options.growth_interval(), 2000);
}

TEST(Setters, CheckLikeTheOptions) {
  AmpScaler scaler = make_scaler(4.0);
  EXPECT_THROW(scaler.set_growth_factor(0.5), AssertionError);
  EXPECT_THROW(scaler.set_backoff_factor(kNan), c10::ValueError);
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
