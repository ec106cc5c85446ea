// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// `unscale_with_stats_` and `unscale_clamp_` on the CPU: products against torch's own operator, bit for
// bit; statistics against `grad_stats`; versions, layouts, and what stays untouched.

#include <random>

#include <ATen/ops/_lazy_clone.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/COW.h>
#include <gtest/gtest.h>

#include "cpp/guarded_memory.h"
#include "cpp/ops/gradients.h"

namespace ampscaler {
namespace {

class UnscaleWithStatsDtype : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Cpu, UnscaleWithStatsDtype,
                         testing::Values(at::kHalf, at::kBFloat16, at::kFloat, at::kDouble),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

// What torch's operator makes of the gradients with that scale.
Gradients unscaled_by_torch(const Gradients& grads, float scale) {
  const Gradients expected = clones(grads);
  at::Tensor flag = at::zeros({});
  const at::Tensor inverse = scalar(scale).to(at::kDouble).reciprocal().to(at::kFloat);
  at::_amp_foreach_non_finite_check_and_unscale_(expected, flag, inverse);
  return expected;
}

void expect_torchs_bits(const Gradients& grads, float scale) {
  const Gradients ours = clones(grads);
  ops::unscale_with_stats_(ours, at::full({}, scale));
  const Gradients theirs = unscaled_by_torch(grads, scale);
  for (std::size_t i = 0; i < grads.size(); ++i) {
    EXPECT_TRUE(same_bits(ours[i], theirs[i]))
        << "gradient " << i << ", " << grads[i].dtype() << ", scale " << scale;
  }
}

TEST_P(UnscaleWithStatsDtype, C1AndC2TorchsBitsForRandomScales) {
  at::manual_seed(41);
  std::mt19937 random(41);
  std::uniform_real_distribution<float> exponent(-20.0F, 40.0F);
  for (const std::int64_t size : {1, 3, 8, 31, 64, 100, 2049, 4097, 8193, 30000}) {
    const at::Tensor grad = at::randn({size}).mul_(1000).to(GetParam());
    for (int i = 0; i < 12; ++i) {
      expect_torchs_bits({grad}, std::exp2(exponent(random)));
    }
    for (const float scale : {1.0F, 65536.0F, 3000.0F, -4.0F, 0.25F, 1e-40F}) {
      expect_torchs_bits({grad}, scale);
    }
  }
}

TEST_P(UnscaleWithStatsDtype, C2TorchsBitsForEveryPatternOf16BitsAndTheLimits) {
  if (at::elementSize(GetParam()) == 2) {
    const at::Tensor all = at::arange(65536, at::kInt).to(at::kShort).view(GetParam());
    for (const float scale : {1.0F, 65536.0F, 72089.6F, 0.5F}) {
      expect_torchs_bits({all.clone()}, scale);
    }
  }
  const double largest = GetParam() == at::kDouble ? 1.7e308 : 3.4e38;
  const at::Tensor limits = at::tensor({largest, -largest, 65504.0, 1e-8, 1e-40, 5e-324, -0.0, 0.0,
                                        kInfinity, -kInfinity, kNan},
                                       at::kDouble)
                                .to(GetParam());
  for (const double scale : {1.0, 2.0, 0.25, 1e30, 0.0, kInfinity, kNan}) {
    expect_torchs_bits({limits}, static_cast<float>(scale));
  }
}

TEST_P(UnscaleWithStatsDtype, C8UnalignedViewsAreUnscaledAlike) {
  at::manual_seed(42);
  const at::Tensor grad = at::randn({9001}).to(GetParam());
  const at::Tensor expected = unscaled_by_torch({grad}, 3.0F)[0];
  for (std::int64_t shift = 1; shift < 18; shift += 4) {
    const at::Tensor base = at::full({9001 + shift + 9}, 5.0, GetParam());
    const at::Tensor view = base.slice(0, shift, shift + 9001).copy_(grad);
    ops::unscale_with_stats_({view}, scalar(3.0));
    EXPECT_TRUE(same_bits(view, expected)) << shift;
    EXPECT_TRUE(base.slice(0, 0, shift).eq(5).all().is_nonzero());  // nothing beside it
    EXPECT_TRUE(base.slice(0, shift + 9001).eq(5).all().is_nonzero());
  }
}

// The statistics are of the stored values, so both operators have the same, to the bit.
TEST(UnscaleWithStats, C9TheStatisticsAreThoseOfGradStats) {
  Gradients grads = mixed_gradients(43);
  grads.push_back(at::randn({900001}));
  for (const double norm_type : {2.0, kInfinity, 3.0, 0.0}) {
    for (const double scale : {1.0, 3.0, 65536.0}) {
      ops::GradStatsOptions options;
      options.norm_type = norm_type;
      options.max_norm = 1.0;
      options.user_scale = scalar(2.0);
      const ops::GradStats expected = ops::grad_stats(grads, scalar(scale), options);
      for (const int threads : {1, 2, 5}) {
        const ThreadsGuard guard(threads);
        const Gradients ours = clones(grads);
        EXPECT_TRUE(same_results(ops::unscale_with_stats_(ours, scalar(scale), options), expected))
            << norm_type << " " << scale;
        const Gradients theirs = unscaled_by_torch(grads, static_cast<float>(scale));
        for (std::size_t i = 0; i < ours.size(); ++i) {
          ASSERT_TRUE(same_bits(ours[i], theirs[i])) << "gradient " << i;
        }
      }
    }
  }
}

TEST(UnscaleWithStats, TheDivisorJoinsTheInverseAndTheUsersScaleOnlyTheNorm) {
  const at::Tensor grad = at::tensor({6.0F, 8.0F});
  ops::GradStatsOptions options;
  options.divisor = at::full({1}, 3, at::kLong);
  options.user_scale = at::full({}, 2.0, at::kDouble);
  const ops::GradStats result = ops::unscale_with_stats_({grad}, scalar(4.0), options);
  const auto inverse = static_cast<float>(1.0 / 12.0);
  EXPECT_TRUE(same_bits(grad, at::tensor({6.0F * inverse, 8.0F * inverse})));
  EXPECT_EQ(stat(result, core::kNorm), 10.0 * (1.0 / 24.0));
}

TEST_P(UnscaleWithStatsDtype, C3AnOverflowByTheProductIsFlagged) {
  const double largest = GetParam() == at::kHalf     ? 65504.0
                         : GetParam() == at::kDouble ? 1e308
                                                     : 3e38;
  for (const std::int64_t size : {1, 100, 5000}) {
    const at::Tensor grad = at::ones({size}, GetParam());
    grad[size - 1] = largest;
    const ops::GradStats result = ops::unscale_with_stats_({grad}, scalar(0.01));
    EXPECT_EQ(stat(result, core::kOverflows), 1.0) << size;
    EXPECT_EQ(stat(result, core::kInfs), 0.0);
    EXPECT_EQ(factor(result, core::kFoundInf), 1.0F);
  }
}

TEST(UnscaleWithStats, EveryLayoutAndNothingBetweenTheElements) {
  at::manual_seed(44);
  const at::Tensor base = at::randn({6, 10, 8, 4});
  const auto views = [](const at::Tensor& t) {
    return Gradients{t.transpose(0, 2), t.slice(1, 0, 10, 3),         t.select(2, 3),
                     t[2][1][0][1],     t.permute({2, 0, 3, 1}),      t.slice(0, 1, 1),
                     t.slice(3, 1, 3),  t.as_strided({4, 3}, {20, 5})};
  };
  for (std::size_t i = 0; i < views(base).size(); ++i) {
    const at::Tensor ours = base.clone();
    const at::Tensor theirs = base.clone();
    ops::unscale_with_stats_({views(ours)[i]}, scalar(3.0));
    at::Tensor flag = at::zeros({});
    at::_amp_foreach_non_finite_check_and_unscale_({views(theirs)[i]}, flag, scalar(1.0 / 3.0));
    EXPECT_TRUE(same_bits(ours, theirs)) << "view " << i;
  }
}

TEST(UnscaleWithStats, ComplexGradientsArePairsOfReals) {
  at::manual_seed(45);
  for (const auto dtype : {at::kComplexHalf, at::kComplexFloat, at::kComplexDouble}) {
    const at::Tensor grad = at::randn({2000}, at::kComplexDouble).to(dtype);
    const at::Tensor expected = unscaled_by_torch({at::view_as_real(grad).clone()}, 3.0F)[0];
    ops::unscale_with_stats_({grad}, scalar(3.0));
    EXPECT_TRUE(same_bits(at::view_as_real(grad), expected)) << dtype;
  }
}

TEST(UnscaleWithStats, BumpsTheVersionsOfGradientsEvenIfItNeedNotWrite) {
  const Gradients grads{at::ones({2}), at::empty({0}), at::ones({4, 4}).t(),
                        at::ones({9}).slice(0, 0, 9, 2)};
  for (const double scale : {1.0, 2.0}) {
    const Gradients mine = clones(grads);
    ops::unscale_with_stats_(mine, scalar(scale));
    for (const at::Tensor& grad : mine) {
      EXPECT_EQ(grad._version(), 1) << scale;
    }
  }
  const c10::InferenceMode inference;
  const at::Tensor grad = at::ones({2});
  ops::unscale_with_stats_({grad}, scalar(2.0));
  EXPECT_TRUE(same_bits(grad, at::full({2}, 0.5F)));
}

TEST(UnscaleWithStats, ALazyCloneIsSeparatedFromItsSource) {
  const at::Tensor source = at::ones({100});
  const at::Tensor lazy = at::_lazy_clone(source);
  ops::unscale_with_stats_({lazy}, scalar(1.0));
  EXPECT_TRUE(c10::impl::cow::is_cow_data_ptr(lazy.storage().data_ptr())) << "nothing to write";
  ops::unscale_with_stats_({lazy}, scalar(2.0));
  EXPECT_EQ(lazy.sum().item<float>(), 50.0F);
  EXPECT_EQ(source.sum().item<float>(), 100.0F);
}

TEST(UnscaleWithStats, AScaleOfOneWritesNothing) {
  const auto memory = std::make_unique<GuardedMemory>(1 << 22);
  const at::Tensor grad = memory->tensor({1 << 21}, at::kBFloat16).fill_(2.0);
  memory->watch();
  ops::unscale_with_stats_({grad}, scalar(1.0));
  EXPECT_EQ(memory->accesses(), 1024);
  EXPECT_EQ(memory->writes(), 0);
  ops::unscale_with_stats_({grad}, scalar(2.0));
  memory->unwatch();
  EXPECT_EQ(memory->writes(), 1024);
}

TEST(UnscaleWithStats, AnErrorLeavesEverything) {
  const at::Tensor grad = at::ones({10});
  const std::int64_t version = grad._version();
  ops::GradStatsOptions options;
  options.accumulate = at::zeros({core::kGradSumsWords}, at::kLong);
  for (const Gradients& grads :
       {Gradients{grad, grad.slice(0, 5)}, Gradients{grad, at::ones({2}, at::kLong)},
        Gradients{grad, at::ones({1}).expand({3})}, Gradients{grad, at::Tensor()}}) {
    EXPECT_ANY_THROW(ops::unscale_with_stats_(grads, scalar(2.0), options));
    EXPECT_ANY_THROW(ops::unscale_clamp_(grads, scalar(2.0), 1.0));
  }
  EXPECT_TRUE(same_bits(grad, at::ones({10})));
  EXPECT_EQ(grad._version(), version);
  EXPECT_EQ(options.accumulate->count_nonzero().item<std::int64_t>(), 0);
}

TEST_P(UnscaleWithStatsDtype, ClampIsTorchsUnscaleAndThenClamp) {
  at::manual_seed(46);
  for (const std::int64_t size : {1, 7, 64, 4097, 30000}) {
    const at::Tensor grad = at::randn({size}).mul_(10).to(GetParam());
    grad[0] = kNan;
    grad[size - 1] = -kInfinity;
    for (const double scale : {1.0, 4.0, 3.0}) {
      for (const double clip_value : {0.0, 0.5, 2.0, kInfinity}) {  // exact in every dtype
        const at::Tensor ours = grad.clone();
        const ops::GradStats result = ops::unscale_clamp_({ours}, scalar(scale), clip_value);
        at::Tensor theirs = unscaled_by_torch({grad}, static_cast<float>(scale))[0];
        theirs.clamp_(-clip_value, clip_value);
        EXPECT_TRUE(same_bits(ours, theirs)) << size << " " << scale << " " << clip_value;
        EXPECT_TRUE(same_results(result, ops::grad_stats({grad}, scalar(scale))));
        EXPECT_EQ(ours._version(), 1);
      }
    }
  }
}

}  // namespace
}  // namespace ampscaler
