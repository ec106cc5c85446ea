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

// at::linear and Conv2d cache the cast of their weight; torch::nn::Linear hides its weight in a view.
TEST(AutocastGuard, AForwardWithoutGradDoesNotPoisonTheNextOne) {
  const at::Tensor weight = at::ones({1, 2}).requires_grad_();
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(1, 1, 2));
  const auto forward = [&] {
    return at::linear(at::ones({1, 2}), weight).sum() +
           convolution->forward(at::ones({1, 1, 2, 2})).sum();
  };
  const AutocastGuard autocast(at::kCPU, at::kBFloat16);
  {
    const c10::AutoGradMode no_grad(false);
    forward();
  }
  forward().backward();
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_TRUE(convolution->weight.grad().defined());
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

// The losses of steps 0, 10, 20 and 29.
using Losses = std::vector<double>;

Losses train(const std::vector<at::Tensor>& parameters, const Forward& forward,
             const at::Tensor& target, const RunForward& run) {
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.05));
  Losses losses;
  for (int step = 0; step < 30; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = at::mse_loss(run(forward).to(at::kFloat), target);
    loss.backward();
    optimizer.step();
    if (step % 10 == 0 || step == 29) {
      losses.push_back(loss.item<double>());
    }
  }
  at::autocast::clear_cache();
  return losses;
}

struct Regression {
  Regression() {
    torch::manual_seed(1);
    x = at::randn({64, 8});
    y = 1.5 * x.sum(1, true) + 2;
    torch::manual_seed(0);
    model = torch::nn::Linear(8, 1);
  }

  at::Tensor x;
  at::Tensor y;
  torch::nn::Linear model{nullptr};
};

// As Python's Linear computes.
Losses train_at_linear(const RunForward& run) {
  Regression problem;
  const auto& model = problem.model;
  return train(
      model->parameters(), [&] { return at::linear(problem.x, model->weight, model->bias); },
      problem.y, run);
}

// As LibTorch's Linear computes: the weight goes through a view and is never cached, the bias is.
Losses train_nn_linear(const RunForward& run) {
  Regression problem;
  return train(
      problem.model->parameters(), [&] { return problem.model->forward(problem.x); }, problem.y,
      run);
}

Losses train_convolution(const RunForward& run) {
  torch::manual_seed(1);
  const at::Tensor x = at::randn({4, 2, 6, 6});
  const at::Tensor y = at::randn({4, 1, 5, 5}) + 3;
  torch::manual_seed(0);
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(2, 1, 2));
  return train(convolution->parameters(), [&] { return convolution->forward(x); }, y, run);
}

void expect_losses(const Losses& losses, const Losses& expected, double tolerance) {
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(losses[i], expected[i], tolerance * expected[i]) << "entry " << i;
  }
}

class StaleWeights : public testing::TestWithParam<Losses (*)(const RunForward&)> {};
INSTANTIATE_TEST_SUITE_P(Models, StaleWeights,
                         testing::Values(&train_at_linear, &train_convolution));

TEST_P(StaleWeights, WithTheGuardTheLossFollowsFullPrecision) {
  const Losses reference = GetParam()(without_autocast);
  const Losses guarded = GetParam()(with_guard);
  EXPECT_LT(reference.back(), 0.2 * reference.front());
  EXPECT_NEAR(guarded.back(), reference.back(), 0.05 * reference.back());
}

TEST_P(StaleWeights, WithoutClearingTheCacheTheLossNeverMoves) {
  for (const double loss : GetParam()(without_clearing)) {
    EXPECT_EQ(loss, GetParam()(without_clearing).front());
  }
}

// Observed numbers. Full precision to their last digit; bfloat16 to a hundredth of their value.
TEST(StaleWeightsNumbers, OfLinear) {
  expect_losses(train_at_linear(without_autocast), {26.25, 2.346, 0.284, 0.0539}, 2e-3);
  expect_losses(train_nn_linear(without_autocast), {26.25, 2.346, 0.284, 0.0539}, 2e-3);
  expect_losses(train_at_linear(with_guard), {26.25, 2.346, 0.289, 0.0520}, 1e-2);
  expect_losses(train_at_linear(without_clearing), {26.25, 26.25, 26.25, 26.25}, 1e-2);
  expect_losses(train_nn_linear(with_guard), {26.25, 2.346, 0.289, 0.0520}, 1e-2);
  expect_losses(train_nn_linear(without_clearing), {26.25, 6.109, 4.250, 3.967}, 1e-2);
}

TEST(StaleWeightsNumbers, OfConvolution) {
  expect_losses(train_convolution(without_autocast), {10.16, 2.143, 1.144, 0.9987}, 2e-3);
  expect_losses(train_convolution(with_guard), {10.16, 2.151, 1.146, 1.0006}, 1e-2);
  expect_losses(train_convolution(without_clearing), {10.16, 10.16, 10.16, 10.16}, 1e-2);
}

}  // namespace
}  // namespace ampscaler
