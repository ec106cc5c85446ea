// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// `grad_stats` on the CPU: the clauses of its numeric contract (C1 to C14, the table in
// docs/one_pass.md), one test each, against sums in long double; and what it must not touch.

#include <algorithm>
#include <random>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "cpp/ops/gradients.h"

namespace ampscaler {
namespace {

class GradStatsDtype : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Cpu, GradStatsDtype,
                         testing::Values(at::kHalf, at::kBFloat16, at::kFloat, at::kDouble),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

double allowed_error(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? kTwoLevelError : kDoubleError;
}

TEST_P(GradStatsDtype, C7AccuracyForEverySizeAroundVectorWidthsAndUnits) {
  at::manual_seed(21);
  for (const std::int64_t size :
       {1,   2,   3,    7,    8,    15,   16,   17,   31,   32,   33,   63,   64,    65,   511,
        512, 513, 1000, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 20000, 70001}) {
    for (const double scale : {1.0, 65536.0, 3000.0}) {
      expect_true_stats({at::randn({size}).mul_(5).to(GetParam())}, scale,
                        allowed_error(GetParam()));
    }
  }
}

TEST_P(GradStatsDtype, C7AccuracyForMagnitudesFarApart) {
  at::manual_seed(22);
  const double widest = GetParam() == at::kHalf ? 4.0 : GetParam() == at::kDouble ? 250.0 : 30.0;
  const at::Tensor exponents = at::rand({5000}, at::kDouble).sub_(0.5).mul_(2 * widest);
  const at::Tensor grad = at::pow(10.0, exponents).to(GetParam());
  expect_true_stats({grad, grad.neg()}, 1.0, allowed_error(GetParam()));
}

TEST_P(GradStatsDtype, C3TheFlagIsAboutInputElements) {
  for (const std::int64_t size : {1, 67, 4097, 70000}) {
    for (const std::int64_t position : {std::int64_t{0}, size / 2, size - 1}) {
      for (const double bad : {kInfinity, -kInfinity, kNan}) {
        const at::Tensor grad = at::ones({size}, GetParam());
        grad[position] = bad;
        const ops::GradStats result = ops::grad_stats({at::ones({3}), grad}, scalar(2.0));
        EXPECT_EQ(factor(result, core::kFoundInf), 1.0F) << size << " " << position << " " << bad;
        EXPECT_EQ(stat(result, core::kInfs), std::isinf(bad) ? 1.0 : 0.0);
        EXPECT_EQ(stat(result, core::kNans), std::isnan(bad) ? 1.0 : 0.0);
        EXPECT_EQ(stat(result, core::kElements), static_cast<double>(size + 3));
      }
    }
  }
}

TEST(GradStats, C3DoublesAreJudgedInTheirOwnRange) {
  const ops::GradStats result =
      ops::grad_stats({at::full({3}, 1e300, at::kDouble)}, scalar(65536.0));
  EXPECT_EQ(factor(result, core::kFoundInf), 0.0F);
}

TEST(GradStats, C4NoFalseOverflow) {
  const double largest_half = 65504.0;
  const double largest_float = std::numeric_limits<float>::max();
  const double largest_double = std::numeric_limits<double>::max();
  const auto expect_norm = [](const at::Tensor& grad, double scale, double norm) {
    const ops::GradStats result = ops::grad_stats({grad}, scalar(scale));
    const double error = at::elementSize(grad.scalar_type()) == 2 ? kTwoLevelError : 1e-12;
    EXPECT_NEAR(stat(result, core::kNorm), norm, norm * error) << grad.dtype();
    EXPECT_EQ(factor(result, core::kFoundInf), 0.0F) << grad.dtype();
  };
  expect_norm(at::full({10000}, largest_half, at::kHalf), 1.0, largest_half * 100);
  expect_norm(at::full({10000}, 1e30, at::kFloat), 1.0, 1e30F * 100.0);
  expect_norm(at::full({10000}, 3e38, at::kFloat), 16.0, 3e38F * 100.0 / 16);
  expect_norm(at::full({10000}, largest_float, at::kFloat), 65536.0, largest_float * 100 / 65536);
  expect_norm(at::full({4}, 0x1.FEp127, at::kBFloat16), 65536.0, 0x1.FEp127 * 2 / 65536);
  expect_norm(at::full({10000}, largest_double, at::kDouble), 65536.0, largest_double / 655.36);
  expect_norm(at::full({4}, 1e200, at::kDouble), 1.0, 2e200);
}

TEST(GradStats, C5NoFalseZero) {
  EXPECT_NEAR(norm_of({at::full({10000}, 1e-30, at::kFloat)}), 1e-30F * 100.0, 1e-35);
  EXPECT_NEAR(norm_of({at::full({4}, 1e-38, at::kBFloat16)}), 2e-38, 1e-40);
  EXPECT_EQ(norm_of({at::full({4}, 0x1p-149, at::kFloat)}), 0x1p-148);
  EXPECT_EQ(norm_of({at::full({1}, 0x1p-133, at::kBFloat16)}), 0x1p-133);
  EXPECT_EQ(norm_of({at::full({4}, 0x1p-24, at::kHalf)}, 65536.0), 0x1p-39);
  EXPECT_EQ(norm_of({at::full({4}, 0x1p-1074, at::kDouble)}), 0x1p-1073);
  EXPECT_EQ(factor(ops::grad_stats({at::full({1}, 0x1p-149, at::kFloat)}, scalar(1.0)),
                   core::kRoundedNorm),
            0x1p-149F);
}

TEST(GradStats, C6NanAndInfAreExactByEveryNorm) {
  const at::Tensor fine = at::ones({100});
  const at::Tensor inf = at::tensor({1.0F, -static_cast<float>(kInfinity)});
  const at::Tensor nan = at::tensor({static_cast<float>(kNan), 2.0F});
  for (const double norm_type : {2.0, kInfinity, 1.0, 3.0, 0.5, 0.0}) {
    ops::GradStatsOptions options;
    options.norm_type = norm_type;
    options.max_norm = 0.001;
    const auto norm = [&](const Gradients& grads) {
      const ops::GradStats result = ops::grad_stats(grads, scalar(2.0), options);
      EXPECT_EQ(factor(result, core::kFoundInf), 1.0F) << norm_type;
      EXPECT_EQ(stat(result, core::kClipCoefficient), 1.0) << norm_type;
      return stat(result, core::kNorm);
    };
    EXPECT_EQ(norm({fine, inf}), kInfinity) << norm_type;
    EXPECT_TRUE(std::isnan(norm({inf, fine, nan}))) << norm_type;
    EXPECT_TRUE(std::isnan(norm({nan, inf}))) << norm_type;
  }
  const ops::GradStats both = ops::grad_stats({fine, inf, nan}, scalar(1.0));
  EXPECT_TRUE(std::isnan(stat(both, core::kMaxAbs)));
  EXPECT_EQ(stat(ops::grad_stats({inf}, scalar(1.0)), core::kMaxAbs), kInfinity);
}

TEST(GradStats, C6AScaleOrDivisorThatIsNotUsableSetsTheFlag) {
  for (const double scale : {0.0, -0.0, kInfinity, kNan}) {
    EXPECT_EQ(factor(ops::grad_stats({at::ones({2})}, scalar(scale)), core::kFoundInf), 1.0F)
        << scale;
  }
  for (const double divisor : {0.0, -1.0, kInfinity, kNan}) {
    ops::GradStatsOptions options;
    options.divisor = scalar(divisor);
    EXPECT_EQ(factor(ops::grad_stats({at::ones({2})}, scalar(1.0), options), core::kFoundInf), 1.0F)
        << divisor;
  }
  EXPECT_EQ(norm_of({at::tensor({3.0F, 4.0F})}, -2.0), 2.5);
}

TEST_P(GradStatsDtype, C8AddressIndependentBits) {
  at::manual_seed(23);
  for (const std::int64_t size : {5, 100, 4097, 30000}) {
    const at::Tensor grad = at::randn({size}).mul_(7).to(GetParam());
    const ops::GradStats expected = ops::grad_stats({grad}, scalar(3.0));
    for (std::int64_t shift = 1; shift < 33; shift += shift < 4 ? 1 : 7) {
      const at::Tensor moved = at::empty({size + shift}, GetParam()).slice(0, shift);
      moved.copy_(grad);
      EXPECT_TRUE(same_results(ops::grad_stats({moved}, scalar(3.0)), expected))
          << size << " elements, moved by " << shift;
    }
  }
}

TEST(GradStats, C9ScheduleIndependentBits) {
  Gradients grads = mixed_gradients(24);
  grads.push_back(at::randn({700001}));  // so that all threads have work
  grads.push_back(at::randn({500000}).to(at::kBFloat16));
  for (const double norm_type : {2.0, kInfinity, 1.5, 0.0}) {
    ops::GradStatsOptions options;
    options.norm_type = norm_type;
    options.max_norm = 10.0;
    const ops::GradStats expected = ops::grad_stats(grads, scalar(3.0), options);
    for (const int threads : {1, 2, 3, 7}) {
      const ThreadsGuard guard(threads);
      EXPECT_TRUE(same_results(ops::grad_stats(grads, scalar(3.0), options), expected)) << threads;
      Gradients shuffled = grads;
      std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(static_cast<unsigned>(threads)));
      EXPECT_TRUE(same_results(ops::grad_stats(shuffled, scalar(3.0), options), expected));
    }
  }
}

TEST(GradStats, C9AnySplittingIntoAccumulatingCallsHasTheSameBits) {
  const Gradients grads = mixed_gradients(25);
  const std::size_t size = grads.size();
  for (const double norm_type : {2.0, kInfinity, 3.0, 0.0}) {
    ops::GradStatsOptions options;
    options.norm_type = norm_type;
    const ops::GradStats expected = ops::grad_stats(grads, scalar(3.0), options);
    at::Tensor words;
    for (const std::size_t calls : {std::size_t{1}, std::size_t{2}, std::size_t{5}, size}) {
      at::Tensor sums = at::zeros({core::kGradSumsWords}, at::kLong);
      const std::int64_t version = sums._version();
      options.accumulate = sums;
      ops::GradStats last;
      for (std::size_t call = 0; call < calls; ++call) {
        const at::TensorList part(grads.data() + call * size / calls,
                                  grads.data() + (call + 1) * size / calls);
        last = ops::grad_stats(part, scalar(3.0), options);
      }
      EXPECT_TRUE(same_results(last, expected)) << norm_type << " in " << calls << " calls";
      EXPECT_TRUE(!words.defined() || at::equal(words, sums));
      const at::Tensor limbs = sums.slice(0, 0, core::kLimbs);
      EXPECT_EQ(limbs.bitwise_right_shift(32).count_nonzero().item<std::int64_t>(), 0)
          << "so that more calls, and a sum over processes, have room";
      words = sums;
      EXPECT_EQ(sums._version(), version + static_cast<std::int64_t>(calls));
    }
  }
}

TEST(GradStats, C10DeterministicFromRunToRun) {
  const Gradients grads = mixed_gradients(26);
  const ops::GradStats expected = ops::grad_stats(grads, scalar(7.0));
  for (int run = 0; run < 20; ++run) {
    EXPECT_TRUE(same_results(ops::grad_stats(grads, scalar(7.0)), expected));
  }
}

TEST(GradStats, C11TheCoefficientIsOneWithinTheLimitAndElseTheQuotient) {
  const Gradients grads{at::tensor({3.0F, 0.0F}), at::tensor({4.0}, at::kDouble)};  // norm 5
  const auto result = [&](double max_norm, double eps) {
    ops::GradStatsOptions options;
    options.max_norm = max_norm;
    options.eps = eps;
    return ops::grad_stats(grads, scalar(2.0), options);  // norm 2.5
  };
  EXPECT_EQ(stat(result(2.5, 0.0), core::kClipCoefficient), 1.0);
  EXPECT_EQ(stat(result(kInfinity, 0.0), core::kClipCoefficient), 1.0);
  EXPECT_EQ(stat(result(1.0, 0.0), core::kClipCoefficient), 1.0 / 2.5);
  EXPECT_EQ(stat(result(1.0, 1e-6), core::kClipCoefficient), 1.0 / (2.5 + 1e-6));
  EXPECT_EQ(factor(result(1.0, 0.0), core::kRoundedClip), 0.4F);
  EXPECT_EQ(factor(result(1.0, 0.0), core::kUnscaleAndClip), 0.2F);
  EXPECT_EQ(factor(result(1.0, 0.0), core::kEffectiveGradScale), 5.0F);
}

TEST(GradStats, C11ALimitThatIsATensorWinsAndIsNotRefused) {
  ops::GradStatsOptions options;
  options.max_norm = 100.0;
  const auto coefficient = [&](const at::Tensor& limit) {
    options.max_norm_tensor = limit;
    return stat(ops::grad_stats({at::full({4}, 2.0)}, scalar(1.0), options),
                core::kClipCoefficient);
  };
  EXPECT_EQ(coefficient(scalar(1.0)), 0.25);
  EXPECT_EQ(coefficient(at::full({1}, 2, at::kInt)), 0.5);
  EXPECT_EQ(coefficient(at::full({}, 0.5, at::kHalf)), 0.125);
  EXPECT_EQ(coefficient(at::full({}, 1e-3, at::kDouble)), 1e-3 / 4.0);
  for (const double none : {0.0, -1.0, kNan}) {
    EXPECT_EQ(coefficient(scalar(none)), 1.0) << none;
  }
}

TEST(GradStats, C12EmptyListsAndTensorsWithoutElements) {
  const at::Tensor none = at::empty({0});
  for (const Gradients& grads :
       {Gradients{}, Gradients{none}, Gradients{none, at::empty({3, 0})}}) {
    const ops::GradStats result = ops::grad_stats(grads, scalar(kInfinity));
    EXPECT_EQ(stat(result, core::kNorm), 0.0);
    EXPECT_EQ(stat(result, core::kMaxAbs), 0.0);
    EXPECT_EQ(factor(result, core::kFoundInf), 0.0F);
  }
  const at::Tensor a = at::randn({5000});
  const at::Tensor b = at::randn({10}, at::kDouble);
  const ops::GradStats expected = ops::grad_stats({a, b}, scalar(1.0));
  for (const Gradients& grads : {Gradients{none, a, b}, Gradients{a, none, b},
                                 Gradients{a, b, none}, Gradients{none, none, a, none, b, none}}) {
    EXPECT_TRUE(same_results(ops::grad_stats(grads, scalar(1.0)), expected));
  }
}

TEST_P(GradStatsDtype, C13MaxAbsAndCountsAreExact) {
  at::manual_seed(27);
  const at::Tensor grad = at::randn({30011}, at::kDouble).mul_(1e-4).to(GetParam());
  grad.slice(0, 0, 30011, 7).zero_();
  grad.slice(0, 1, 30011, 7).fill_(-0.0);
  grad[3] = 0x1p-14;
  grad[4] = -0x1p-14 * (1.0 - 0x1p-8);  // the next number below, in bfloat16 too
  grad[9000] = -77.0;
  expect_true_stats({grad}, 8.0, allowed_error(GetParam()));
  EXPECT_EQ(stat(ops::grad_stats({grad}, scalar(8.0)), core::kMaxAbs), 77.0 / 8.0);
}

TEST(GradStats, C14DenormalsCountAtFullPrecision) {
  expect_true_stats({at::full({777}, 1e-40, at::kFloat)}, 1.0, kDoubleError);
  expect_true_stats({at::full({777}, 0x1p-24, at::kHalf)}, 1.0, kTwoLevelError);
  EXPECT_EQ(norm_of({at::full({9}, 5 * 0x1p-1074, at::kDouble)}), 15 * 0x1p-1074);
}

// The rounding and flushing of the calling thread are those of all threads, and the others get theirs
// back.
TEST(GradStats, C14FlushingHoldsOnEveryThreadAlike) {
  const at::Tensor grad = at::full({1 << 20}, 1e-40, at::kFloat);
  const double kept = norm_of({grad});
  ASSERT_TRUE(at::globalContext().setFlushDenormal(true));
  const ops::GradStats serial = [&] {
    const ThreadsGuard guard(1);
    return ops::grad_stats({grad}, scalar(1.0));
  }();
  for (const int threads : {2, 3}) {
    const ThreadsGuard guard(threads);
    EXPECT_TRUE(same_results(ops::grad_stats({grad}, scalar(1.0)), serial)) << threads;
  }
  at::globalContext().setFlushDenormal(false);
  const ThreadsGuard guard(2);
  // On the threads of the pool, torch's own arithmetic still sees denormals.
  EXPECT_EQ(grad.mul(0.5).count_nonzero().item<std::int64_t>(), grad.numel());
  EXPECT_EQ(norm_of({grad}), kept);
  EXPECT_GT(kept, 0.0);
}

TEST(GradStats, OtherNormsArePlainDouble) {
  const Gradients grads{at::tensor({3.0F, -4.0F}), at::tensor({0.0, 5.0}, at::kDouble),
                        at::zeros({7}), at::full({2}, 0.5, at::kHalf)};
  const auto norm = [&](double norm_type) {
    ops::GradStatsOptions options;
    options.norm_type = norm_type;
    return norm_of(grads, 2.0, options);
  };
  EXPECT_EQ(norm(1.0), 13.0 / 2);
  EXPECT_EQ(norm(kInfinity), 2.5);
  EXPECT_NEAR(norm(3.0), std::pow(27.0 + 64 + 125 + 0.25, 1.0 / 3) / 2, 1e-15);
  EXPECT_NEAR(norm(0.5), std::pow(std::sqrt(3.0) + 2 + std::sqrt(5.0) + 2 * std::sqrt(0.5), 2) / 2,
              1e-13);
  EXPECT_EQ(norm(0.0), 3.0);  // tensors with an element that is not 0
}

TEST(GradStats, ALargeTensorCountsOnceForNormZero) {
  const ThreadsGuard guard(2);
  ops::GradStatsOptions options;
  options.norm_type = 0.0;
  EXPECT_EQ(norm_of({at::ones({1 << 20}), at::zeros({1 << 20}), at::ones({3})}, 1.0, options), 2.0);
}

}  // namespace
}  // namespace ampscaler
