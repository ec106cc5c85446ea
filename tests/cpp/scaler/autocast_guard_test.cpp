// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The autocast guard: restores everything, clears the cast cache, and what happens to training
// without that.

#include <functional>
#include <thread>

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <ampscaler/autocast_guard.h>

#include "cpp/error_text.h"

namespace ampscaler {
namespace {

struct ThreadState {
  bool enabled = at::autocast::is_autocast_enabled(at::kCPU);
  at::ScalarType dtype = at::autocast::get_autocast_dtype(at::kCPU);
  bool cache = at::autocast::is_autocast_cache_enabled();

  bool operator==(const ThreadState&) const = default;
};

int nesting() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}

at::ScalarType dtype_of_product() {
  return at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type();
}

TEST(AutocastGuard, RunsTheScopeInTheChosenDtype) {
  EXPECT_EQ(dtype_of_product(), at::kFloat);
  {
    const AutocastGuard half(at::kCPU, at::kHalf);
    EXPECT_EQ(dtype_of_product(), at::kHalf);
    {
      const AutocastGuard off(at::kCPU, at::kHalf, /*enabled=*/false);
      EXPECT_EQ(dtype_of_product(), at::kFloat);
    }
    EXPECT_EQ(dtype_of_product(), at::kHalf);
  }
  {
    const AutocastGuard by_default(at::kCPU);
    EXPECT_EQ(dtype_of_product(), at::kBFloat16);
    const AutocastGuard single_is_off(at::kCPU, at::kFloat);
    EXPECT_EQ(dtype_of_product(), at::kFloat);
  }
  EXPECT_EQ(dtype_of_product(), at::kFloat);
}

TEST(AutocastGuard, RestoresEverythingAlsoWhenTheScopeThrows) {
  const ThreadState before;
  const int nesting_before = nesting();
  const auto throwing_forward = [] {
    const AutocastGuard autocast(at::kCPU, at::kHalf, true, /*cache_enabled=*/false);
    at::mm(at::ones({2, 3}), at::ones({2, 3}));
  };
  EXPECT_THROW(throwing_forward(), c10::Error);
  EXPECT_TRUE(ThreadState() == before);
  EXPECT_EQ(nesting(), nesting_before);
}

TEST(AutocastGuard, RefusesOtherDtypesBeforeChangingAnything) {
  const ThreadState before;
  EXPECT_EQ(error_text<c10::ValueError>([] { AutocastGuard(at::kCPU, at::kDouble); }),
            "AutocastGuard: dtype: expected float16, bfloat16 or float32 (off), got Double.");
  EXPECT_TRUE(ThreadState() == before);
}

TEST(AutocastGuard, IsOfTheCallingThreadOnly) {
  const AutocastGuard autocast(at::kCPU, at::kBFloat16);
  at::ScalarType elsewhere{};
  std::thread([&] { elsewhere = dtype_of_product(); }).join();
  EXPECT_EQ(elsewhere, at::kFloat);
}

TEST(AutocastGuard, NestedDtypesDoNotShareCasts) {
  const at::Tensor weight = at::ones({2, 2}).requires_grad_();
  const AutocastGuard outer(at::kCPU, at::kBFloat16);
  EXPECT_EQ(at::mm(at::ones({2, 2}), weight).scalar_type(), at::kBFloat16);
  {
    const AutocastGuard inner(at::kCPU, at::kHalf);
    EXPECT_EQ(at::mm(at::ones({2, 2}), weight).scalar_type(), at::kHalf);
  }
  EXPECT_EQ(at::mm(at::ones({2, 2}), weight).scalar_type(), at::kBFloat16);
}

TEST(AutocastGuard, AForwardWithoutGradDoesNotPoisonTheNextOne) {
  torch::nn::Linear linear(2, 1);
  const AutocastGuard autocast(at::kCPU, at::kBFloat16);
  {
    const c10::AutoGradMode no_grad(false);
    linear->forward(at::ones({1, 2}));
  }
  linear->forward(at::ones({1, 2})).sum().backward();
  EXPECT_TRUE(linear->weight.grad().defined());
}

// ---- stale weights: 30 steps of SGD on a tiny regression, with the guard and with what people
// write instead ----

using Forward = std::function<at::Tensor()>;
using RunForward = std::function<at::Tensor(const Forward&)>;

at::Tensor with_guard(const Forward& forward) {
  const AutocastGuard autocast(at::kCPU, at::kBFloat16);
  return forward();
}

// What a hand-written wrapper does: on, off, and the casts stay in the cache.
at::Tensor without_clearing(const Forward& forward) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::Tensor output = forward();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  return output;
}

at::Tensor without_autocast(const Forward& forward) { return forward(); }

struct Losses {
  double first;
  double last;
};

Losses train(const std::vector<at::Tensor>& parameters, const Forward& forward,
             const at::Tensor& target, const RunForward& run) {
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.05));
  Losses losses{};
  for (int step = 0; step < 30; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = at::mse_loss(run(forward).to(at::kFloat), target);
    loss.backward();
    optimizer.step();
    (step == 0 ? losses.first : losses.last) = loss.item<double>();
  }
  at::autocast::clear_cache();
  return losses;
}

Losses train_linear(const RunForward& run) {
  torch::manual_seed(1);
  const at::Tensor x = at::randn({64, 8});
  const at::Tensor y = 1.5 * x.sum(1, true) + 2;
  torch::manual_seed(0);
  torch::nn::Linear linear(8, 1);
  return train(
      linear->parameters(), [&] { return at::linear(x, linear->weight, linear->bias); }, y, run);
}

Losses train_convolution(const RunForward& run) {
  torch::manual_seed(1);
  const at::Tensor x = at::randn({4, 2, 6, 6});
  const at::Tensor y = at::randn({4, 1, 5, 5}) + 3;
  torch::manual_seed(0);
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(2, 1, 2));
  return train(convolution->parameters(), [&] { return convolution->forward(x); }, y, run);
}

class StaleWeights : public testing::TestWithParam<Losses (*)(const RunForward&)> {};
INSTANTIATE_TEST_SUITE_P(Models, StaleWeights, testing::Values(&train_linear, &train_convolution));

TEST_P(StaleWeights, WithTheGuardTheLossFollowsFullPrecision) {
  const Losses reference = GetParam()(without_autocast);
  const Losses guarded = GetParam()(with_guard);
  EXPECT_LT(reference.last, 0.2 * reference.first);
  EXPECT_NEAR(guarded.last, reference.last, 0.05 * reference.last);
}

TEST_P(StaleWeights, WithoutClearingTheCacheTheLossNeverMoves) {
  const Losses stale = GetParam()(without_clearing);
  EXPECT_EQ(stale.last, stale.first);
}

TEST(StaleWeightsNumbers, AreTheOnesObserved) {
  EXPECT_NEAR(train_linear(without_autocast).first, 26.25, 0.005);
  EXPECT_NEAR(train_linear(without_autocast).last, 0.0539, 0.00005);
  EXPECT_NEAR(train_linear(with_guard).last, 0.0520, 0.0005);
  EXPECT_NEAR(train_convolution(without_autocast).last, 0.9987, 0.00005);
  EXPECT_NEAR(train_convolution(with_guard).last, 1.0006, 0.0005);
}

}  // namespace
}  // namespace ampscaler
