// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The CUDA backends, run on the CPU: versions, accumulation, gradients that require a gradient, refusals,
// failed launches.

#include <functional>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "core/grad_stats.h"
#include "cpp/cuda/launch_record.h"
#include "cpp/ops/gradients.h"
#include "kernels/cuda/backends.h"

namespace ampscaler::cuda {
namespace {

ops::StatsAndFactors run(ops::GradStatsFunction& backend, const Gradients& grads,
                         const ops::OptionalTensor& accumulate = {}) {
  return backend(grads, scalar(4), {}, {}, 2.0, {}, {}, 0.0, accumulate);
}

double norm_in(const ops::StatsAndFactors& results) {
  return std::get<0>(results).const_data_ptr<double>()[core::kNorm];
}

Gradients two_gradients() { return {at::full({3}, 4.0), at::full({2, 2}, 4.0).t()}; }

TEST(CudaBackendRules, AccumulatingCallsGiveWhatOneCallGives) {
  const Gradients first = two_gradients();
  const Gradients second = {at::full({5000}, 0.3), at::full({7}, 60000.0, at::kHalf)};
  Gradients all = first;
  all.insert(all.end(), second.begin(), second.end());
  const at::Tensor words = at::zeros({core::kGradSumsWords}, at::kLong);
  const at::Tensor once = words.clone();
  const std::int64_t versions = words._version() + once._version();
  run(grad_stats, second, words);
  const ops::StatsAndFactors joined = run(grad_stats, first, words);
  const ops::StatsAndFactors whole = run(grad_stats, all);
  EXPECT_TRUE(at::equal(std::get<0>(joined), std::get<0>(whole)));
  EXPECT_TRUE(at::equal(std::get<1>(joined), std::get<1>(whole)));
  run(unscale_with_stats, all, once);
  EXPECT_TRUE(at::equal(words, once));
  EXPECT_EQ(words._version() + once._version() - versions, 3);
}

TEST(CudaBackendRules, VersionsOfWhatIsWrittenAreBumpedOnce) {
  const at::Tensor flag = at::zeros({});
  const std::vector<std::pair<int, std::function<void(const Gradients&)>>> calls{
      {0, [](const Gradients& grads) { run(grad_stats, grads); }},
      {1, [](const Gradients& grads) { run(unscale_with_stats, grads); }},
      {1, [](const Gradients& grads) { unscale_clamp(grads, scalar(4), 1.0, {}, {}); }},
      {1, [&](const Gradients& grads) { scale_grads(grads, scalar(1), flag); }},
      {0, [&](const Gradients& grads) { unscale(grads, flag, scalar(0.25)); }},
      {0, [](const Gradients& grads) { grad_norms(grads, scalar(4), 2.0); }},
      {0, [](const Gradients& grads) { find_nonfinite(grads); }},
  };
  const std::int64_t of_flag = flag._version();
  for (const auto& [bumps, call] : calls) {
    Gradients grads = two_gradients();
    grads.push_back(at::ones({4, 4}).slice(1, 0, 4, 2));  // works on a copy
    std::vector<std::int64_t> versions;
    for (const at::Tensor& grad : grads) {
      versions.push_back(grad._version() + bumps);
    }
    call(grads);
    for (std::size_t i = 0; i < grads.size(); ++i) {
      EXPECT_EQ(grads[i]._version(), versions[i]);
    }
  }
  EXPECT_EQ(flag._version(), of_flag);
}

TEST(CudaBackendRules, LeavesThatRequireAGradientAreEdited) {
  Gradients grads = {at::full({3}, 4.0), at::full({4, 4}, 4.0).slice(1, 0, 4, 2)};
  for (at::Tensor& grad : grads) {
    grad.requires_grad_();
  }
  const ops::StatsAndFactors results = run(unscale_with_stats, grads);
  EXPECT_DOUBLE_EQ(norm_in(results), std::sqrt(11.0));
  for (const at::Tensor& grad : grads) {
    EXPECT_TRUE(at::equal(grad.detach(), at::ones_like(grad.detach())));
  }
  EXPECT_FALSE(std::get<0>(results).requires_grad());
}

// Lazily cloned memory is copied by who writes and by nobody else.
TEST(CudaBackendRules, ReadingLeavesALazyCloneLazy) {
  const at::Tensor original = at::full({3}, 4.0);
  const at::Tensor clone = original._lazy_clone();
  EXPECT_DOUBLE_EQ(norm_in(run(grad_stats, {clone})), std::sqrt(3.0));
  EXPECT_EQ(clone.const_data_ptr(), original.const_data_ptr());
  run(unscale_with_stats, {clone});
  EXPECT_NE(clone.const_data_ptr(), original.const_data_ptr());
  EXPECT_TRUE(at::equal(original, at::full({3}, 4.0)));
}

TEST(CudaBackendRules, RefusedCallsLaunchNothing) {
  const at::Tensor flag = at::zeros({});
  const at::Tensor shared = at::ones({4});
  const Gradients overlapping = {shared, shared.slice(0, 1)};
  const Gradients integers = {at::ones({4}, at::kInt)};
  const std::int64_t version = shared._version();
  test::launch_record() = {};
  EXPECT_THROW(run(grad_stats, overlapping), c10::ValueError);
  EXPECT_THROW(run(unscale_with_stats, overlapping), c10::ValueError);
  EXPECT_THROW(unscale_clamp(overlapping, scalar(4), 1.0, {}, {}), c10::ValueError);
  EXPECT_THROW(unscale_clamp({shared}, scalar(4), -1.0, {}, {}), c10::ValueError);
  EXPECT_THROW(scale_grads(overlapping, scalar(4), flag), c10::ValueError);
  EXPECT_THROW(run(grad_stats, integers), c10::NotImplementedError);
  EXPECT_THROW(unscale(integers, flag, scalar(4)), c10::NotImplementedError);
  EXPECT_THROW(grad_norms(integers, scalar(4), 2.0), c10::NotImplementedError);
  EXPECT_THROW(find_nonfinite(integers), c10::NotImplementedError);
  EXPECT_THROW(update_scale(scalar(4), flag, flag, 2.0, 0.5, 1), c10::Error);
  EXPECT_THROW(advance_scale(scalar(4), at::zeros({}, at::kInt), flag, {2.0}), c10::ValueError);
  EXPECT_THROW(merge_stats({}, 2.0, {}, {}, 0.0), c10::ValueError);
  EXPECT_THROW(merge_stats({shared}, 2.0, {}, {}, 0.0), c10::Error);
  EXPECT_THROW(step_factors(flag, shared, {}, {}, {}), c10::Error);
  EXPECT_TRUE(test::launch_record().streams.empty());
  EXPECT_TRUE(at::equal(shared, at::ones({4})));
  EXPECT_EQ(shared._version(), version);
}

TEST(CudaBackendRules, AFailedLaunchIsAnException) {
  const Gradients grads = two_gradients();
  const at::Tensor flag = at::zeros({});
  const at::Tensor tracker = at::zeros({}, at::kInt);
  const Gradients rows(121, at::ones({core::kStatsSlots}, at::kDouble));
  const std::vector<std::function<void()>> calls{
      [&] { run(grad_stats, grads); },
      [&] { run(unscale_with_stats, grads); },
      [&] { unscale_clamp(grads, scalar(4), 1.0, {}, {}); },
      [&] { scale_grads(grads, scalar(4), flag); },
      [&] { unscale(grads, flag, scalar(4)); },
      [&] { grad_norms(grads, scalar(4), 2.0); },
      [&] { find_nonfinite(grads); },
      [&] { update_scale(flag, tracker, flag, 2.0, 0.5, 1); },
      [&] { step_factors(flag, flag, {}, {}, {}); },
      [&] { merge_stats(at::TensorList(rows).slice(1), 2.0, {}, {}, 0.0); },
      [&] { merge_stats(rows, 2.0, {}, {}, 0.0); },
  };
  for (const auto& call : calls) {
    test::launch_record() = {};
    test::launch_record().failing_launch = 1;
    EXPECT_THROW(call(), c10::Error);
  }
  test::launch_record() = {};
}

}  // namespace
}  // namespace ampscaler::cuda
