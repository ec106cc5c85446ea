// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The CUDA backends, run on the CPU, against the CPU backends: what is stored to the bit, counts and flags
// exactly, norms within the promised error; for every dtype and layout, every option, and long lists.

#include "kernels/cuda/backends.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/ops.h>

#include "core/grad_stats.h"
#include "cpp/cuda/launch_record.h"
#include "cpp/ops/gradients.h"
#include "cpp/ops/mixed_list.h"

namespace ampscaler::cuda {
namespace {

using ops::GradStatsOptions;

at::Tensor as_real(const at::Tensor& grad) {
  return grad.is_complex() ? at::view_as_real(grad.resolve_conj()) : grad;
}

void expect_same(const Gradients& ours, const Gradients& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].scalar_type(), theirs[i].scalar_type()) << "gradient " << i;
    EXPECT_TRUE(same_bits(as_real(ours[i]), as_real(theirs[i]))) << "gradient " << i;
  }
}

// Norms and what follows from them differ by rounding; everything else does not.
void expect_close(const ops::GradStats& ours, const ops::GradStats& theirs) {
  EXPECT_TRUE(at::allclose(ours.stats, theirs.stats, kTwoLevelError, 0.0, /*equal_nan=*/true))
      << ours.stats << theirs.stats;
  EXPECT_TRUE(at::allclose(ours.factors, theirs.factors, kTwoLevelError, 0.0, /*equal_nan=*/true))
      << ours.factors << theirs.factors;
  for (const core::StatsSlot slot : {core::kMaxAbs, core::kZeros, core::kUnderflows,
                                     core::kElements, core::kInfs, core::kNans, core::kOverflows}) {
    const double expected = stat(theirs, slot);
    EXPECT_TRUE(stat(ours, slot) == expected || std::isnan(expected)) << core::kStatsNames[slot];
  }
  EXPECT_EQ(factor(ours, core::kFoundInf), factor(theirs, core::kFoundInf));
}

ops::GradStats to_struct(const ops::StatsAndFactors& results) {
  return {std::get<0>(results), std::get<1>(results)};
}

ops::GradStats run(ops::GradStatsFunction& backend, const Gradients& grads, const at::Tensor& scale,
                   const GradStatsOptions& options = {}) {
  return to_struct(backend(grads, scale, options.divisor, options.user_scale, options.norm_type,
                           options.max_norm, options.max_norm_tensor, options.eps,
                           options.accumulate));
}

Gradients writable_list() {
  Gradients grads = mixed_list();
  grads[6] = grads[6].resolve_conj();
  return grads;
}

// Plain, without elements, with an inf, with a NaN behind a gap between rows, none at all.
std::vector<Gradients> lists() {
  std::vector<Gradients> all{writable_list(), {at::ones({0}), at::ones({2, 0}, at::kHalf)}, {}};
  all.push_back(writable_list());
  all.back()[1][3][2] = kInfinity;
  all.push_back(writable_list());
  all.back()[2][5][3] = kNan;
  return all;
}

class CudaBackends : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const cudaStream_t stream : test::launch_record().streams) {
      EXPECT_EQ(stream, test::current_stream());
    }
    const Workspace zeros = {};
    EXPECT_EQ(std::memcmp(&test::launch_record().workspace, &zeros, sizeof(zeros)), 0);
    test::launch_record() = {};
  }
};

std::vector<GradStatsOptions> all_options() {
  std::vector<GradStatsOptions> all(1);
  for (const double norm_type : {0.0, 1.0, 3.5, kInfinity}) {
    all.push_back({.norm_type = norm_type, .max_norm = 0.25});
  }
  const at::Tensor three = at::full({}, 3, at::kLong);
  all.push_back({.divisor = three, .user_scale = at::full({1}, 0.3, at::kDouble), .max_norm = 2.0});
  all.push_back({.divisor = at::full({}, 2, at::kHalf),
                 .user_scale = at::full({}, -5, at::kChar),
                 .max_norm = 1e-3,
                 .max_norm_tensor = at::full({1, 1}, 0.5, at::kBFloat16),
                 .eps = 1e-2});
  all.push_back({.divisor = at::zeros({}), .max_norm_tensor = three});
  // No float holds it: the inverse of 2^24 is another float.
  all.push_back({.divisor = at::full({}, (std::int64_t{1} << 24) + 1, at::kLong)});
  all.push_back({.max_norm_tensor = at::full({}, -1.0)});
  return all;
}

TEST_F(CudaBackends, GradStatsFindWhatTheCpuFinds) {
  for (const GradStatsOptions& options : all_options()) {
    for (const Gradients& grads : lists()) {
      expect_close(run(grad_stats, grads, scalar(64), options),
                   ops::grad_stats(grads, scalar(64), options));
    }
  }
  expect_close(run(grad_stats, mixed_list(), scalar(8)), ops::grad_stats(mixed_list(), scalar(8)));
}

TEST_F(CudaBackends, UnscalingWithStatsStoresWhatTheCpuStores) {
  for (const double scale : {64.0, 1.0, 0x1p-20, 3.0}) {
    for (const GradStatsOptions& options : all_options()) {
      const std::vector<Gradients> ours = lists();
      const std::vector<Gradients> theirs = lists();
      for (std::size_t i = 0; i < ours.size(); ++i) {
        expect_close(run(unscale_with_stats, ours[i], scalar(scale), options),
                     ops::unscale_with_stats_(theirs[i], scalar(scale), options));
        expect_same(ours[i], theirs[i]);
      }
    }
  }
}

TEST_F(CudaBackends, ClampingStoresWhatTheCpuStores) {
  for (const double clip_value : {0.0, 0.01, 3.0, kInfinity}) {
    const std::vector<Gradients> ours = lists();
    const std::vector<Gradients> theirs = lists();
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const at::Tensor divisor = at::full({}, 3, at::kInt);
      const at::Tensor user_scale = at::full({}, 0.5);
      expect_close(to_struct(unscale_clamp(ours[i], scalar(2), clip_value, divisor, user_scale)),
                   ops::unscale_clamp_(theirs[i], scalar(2), clip_value, divisor, user_scale));
      expect_same(ours[i], theirs[i]);
    }
  }
}

TEST_F(CudaBackends, ScaleGradsMultipliesUnlessItMustNot) {
  for (const double factor : {0.3, 1.0, 0x1p-20}) {
    for (const double flag : {0.0, 1.0}) {
      const Gradients ours = writable_list();
      const Gradients theirs = writable_list();
      scale_grads(ours, scalar(factor), scalar(flag));
      ops::scale_grads_(theirs, scalar(factor), scalar(flag));
      expect_same(ours, theirs);
    }
  }
}

TEST_F(CudaBackends, UnscaleStoresAndFlagsWhatAtenDoes) {
  for (const double planted : {1.0, kInfinity, kNan}) {
    Gradients lists[2];
    at::Tensor flags[2];
    for (int i = 0; i < 2; ++i) {
      const at::Tensor base = at::arange(-24.0, 24.0).reshape({6, 8});
      lists[i] = {base.to(at::kHalf), base.t().clone(), base.to(at::kDouble).slice(1, 0, 8, 2),
                  base.to(at::kBFloat16), at::ones({0})};
      lists[i][2][5][3] = planted;
      flags[i] = at::zeros({});
    }
    unscale(lists[0], flags[0], scalar(1.0 / 3.0));
    ops::unscale_(lists[1], flags[1], scalar(1.0 / 3.0));
    expect_same(lists[0], lists[1]);
    EXPECT_TRUE(at::equal(flags[0], flags[1]));
  }
}

TEST_F(CudaBackends, NormsOfEachGradientAreThoseOfTheCpu) {
  for (const double norm_type : {2.0, 0.0, 1.0, 3.5, kInfinity}) {
    for (const Gradients& grads : lists()) {
      const at::Tensor ours = grad_norms(grads, scalar(8), norm_type);
      const at::Tensor theirs = ops::grad_norms(grads, scalar(8), norm_type);
      EXPECT_TRUE(at::allclose(ours, theirs, kTwoLevelError, 0.0, /*equal_nan=*/true))
          << norm_type << ours << theirs;
    }
  }
}

TEST_F(CudaBackends, FindingsAreThoseOfTheCpu) {
  std::vector<Gradients> all = lists();
  all.erase(all.begin() + 2);  // without tensors the CPU is asked
  all.push_back(mixed_list());
  const at::Tensor permuted = at::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  permuted[1][2][0][4] = kNan;
  permuted[1][0][3][1] = -kInfinity;
  const at::Tensor complex = at::ones({3, 4}, at::kComplexFloat).t();
  at::view_as_real(complex)[3][1][1] = kNan;
  all.push_back({at::ones({0}), permuted, complex, at::full({3}, kInfinity, at::kHalf)});
  for (const Gradients& grads : all) {
    EXPECT_TRUE(at::equal(find_nonfinite(grads), ops::find_nonfinite(grads)));
  }
}

TEST_F(CudaBackends, LongListsTakeOneLaunchPer2040Gradients) {
  Gradients grads;
  for (int i = 0; i < 2041; ++i) {
    grads.push_back(at::full({1 + i % 3}, i % 7, i % 2 == 0 ? at::kFloat : at::kHalf));
  }
  const GradStatsOptions options = {.max_norm = 1.0};
  const ops::GradStats ours = run(grad_stats, grads, scalar(1), options);
  EXPECT_EQ(test::launch_record().streams.size(), 2U);
  expect_close(ours, ops::grad_stats(grads, scalar(1), options));
  grads[2040][0] = kNan;
  grads[2039][0] = kInfinity;
  EXPECT_TRUE(at::equal(find_nonfinite(grads), ops::find_nonfinite(grads)));
}

TEST_F(CudaBackends, ScalesAdvanceAsOnTheCpu) {
  for (const double flag : {0.0, 1.0, kNan}) {
    for (const bool limited : {false, true}) {
      at::Tensor scales[2] = {scalar(100), scalar(100)};
      at::Tensor trackers[2] = {at::full({}, 2, at::kInt), at::full({}, 2, at::kInt)};
      const std::vector<double> policy{1.5, 0.25, 3, 60.0, limited ? 120.0 : kInfinity};
      if (limited) {
        advance_scale(scales[0], trackers[0], scalar(flag), policy);
        ops::advance_scale_(scales[1], trackers[1], scalar(flag), 1.5, 0.25, 3,
                            ScalePolicy().min_scale(60).max_scale(120));
      } else {
        update_scale(scales[0], trackers[0], scalar(flag), 1.5, 0.25, 3);
        ops::update_scale_(scales[1], trackers[1], scalar(flag), 1.5, 0.25, 3);
      }
      EXPECT_TRUE(at::equal(scales[0], scales[1])) << scales[0] << scales[1];
      EXPECT_TRUE(at::equal(trackers[0], trackers[1]));
      EXPECT_EQ(scales[0]._version(), scales[1]._version());
    }
  }
}

}  // namespace
}  // namespace ampscaler::cuda
