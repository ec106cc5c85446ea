// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// For tests of the one-pass operators: lists of gradients, and what is true of them, computed the plain
// way in long double, whose range holds the squares of all doubles.

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/ops.h>

#include "core/grad_stats.h"

namespace ampscaler {

using Gradients = std::vector<at::Tensor>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Enough for a worst-case relative error of 2^-20, and of 2^-23 where every square is a double.
constexpr double kTwoLevelError = 0x1p-20;
constexpr double kDoubleError = 0x1p-23;

struct Truth {
  long double squares = 0;
  long double max_abs = 0;
  std::int64_t zeros = 0;
  std::int64_t underflows = 0;
  std::int64_t elements = 0;
  std::int64_t infs = 0;
  std::int64_t nans = 0;

  /// Of the finite elements.
  long double norm() const { return std::sqrt(squares); }
};

/// Every element as a double, complex ones as pairs; in row-major order.
inline std::vector<double> values_of(const at::Tensor& grad) {
  at::Tensor real = grad.is_complex() ? at::view_as_real(grad.resolve_conj()) : grad;
  real = real.to(at::kDouble).contiguous();
  const auto* data = real.const_data_ptr<double>();
  return {data, data + real.numel()};
}

inline void add_value(Truth& truth, double value) {
  const long double magnitude = std::fabs(static_cast<long double>(value));
  truth.elements += 1;
  if (std::isnan(value)) {
    truth.nans += 1;
  } else if (std::isinf(value)) {
    truth.infs += 1;
  } else {
    truth.squares += magnitude * magnitude;
    truth.max_abs = std::fmax(truth.max_abs, magnitude);
    truth.zeros += static_cast<std::int64_t>(magnitude == 0);
    truth.underflows += static_cast<std::int64_t>(magnitude > 0 && magnitude < 0x1p-14L);
  }
}

inline Truth truth_of(const Gradients& grads) {
  Truth truth;
  for (const at::Tensor& grad : grads) {
    for (const double value : values_of(grad)) {
      add_value(truth, value);
    }
  }
  return truth;
}

inline at::Tensor scalar(double value) {
  return at::full({}, value, at::dtype(at::kFloat));  // rounded once
}

inline double stat(const ops::GradStats& result, core::StatsSlot slot) {
  return result.stats.const_data_ptr<double>()[slot];
}

inline float factor(const ops::GradStats& result, core::FactorSlot slot) {
  return result.factors.const_data_ptr<float>()[slot];
}

inline double norm_of(const Gradients& grads, double scale = 1.0,
                      const ops::GradStatsOptions& options = {}) {
  return stat(ops::grad_stats(grads, scalar(scale), options), core::kNorm);
}

/// The results of `grad_stats` for finite gradients; only the norm may be off.
inline void expect_true_stats(const Gradients& grads, double scale, double relative_error) {
  const Truth truth = truth_of(grads);
  const ops::GradStats result = ops::grad_stats(grads, scalar(scale));
  const auto inverse = static_cast<long double>(1.0 / scale);
  const auto norm = static_cast<double>(truth.norm() * inverse);
  EXPECT_NEAR(stat(result, core::kNorm), norm, relative_error * norm);
  EXPECT_EQ(stat(result, core::kMaxAbs), static_cast<double>(truth.max_abs) * (1.0 / scale));
  EXPECT_EQ(stat(result, core::kZeros), static_cast<double>(truth.zeros));
  EXPECT_EQ(stat(result, core::kUnderflows), static_cast<double>(truth.underflows));
  EXPECT_EQ(stat(result, core::kElements), static_cast<double>(truth.elements));
  EXPECT_EQ(stat(result, core::kInfs), 0.0);
  EXPECT_EQ(stat(result, core::kNans), 0.0);
  EXPECT_EQ(factor(result, core::kFoundInf), 0.0F);
  EXPECT_EQ(factor(result, core::kRoundedNorm), static_cast<float>(stat(result, core::kNorm)));
}

/// Bits, so that -0 differs from 0, but for the payload of a NaN.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bits = [](const at::Tensor& tensor) {
    return tensor.nan_to_num(0, kInfinity, -kInfinity).contiguous().flatten().view(at::kByte);
  };
  return at::equal(a.isnan(), b.isnan()) && at::equal(bits(a), bits(b));
}

inline bool same_results(const ops::GradStats& a, const ops::GradStats& b) {
  return same_bits(a.stats, b.stats) && same_bits(a.factors, b.factors);
}

inline Gradients clones(const Gradients& grads) {
  Gradients copies;
  copies.reserve(grads.size());
  for (const at::Tensor& grad : grads) {
    copies.push_back(grad.clone());  // preserves dense strides
  }
  return copies;
}

inline std::vector<std::int64_t> versions_of(const Gradients& grads) {
  std::vector<std::int64_t> versions;
  versions.reserve(grads.size());
  for (const at::Tensor& grad : grads) {
    versions.push_back(grad._version());
  }
  return versions;
}

/// All four dtypes, sizes around vector widths and units, magnitudes that half-precision holds.
inline Gradients mixed_gradients(std::int64_t seed) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  Gradients grads;
  const std::vector<at::ScalarType> dtypes{at::kFloat, at::kHalf, at::kDouble, at::kBFloat16};
  std::size_t next = 0;
  for (const std::int64_t size : {1,    2,    7,    64,    257, 2048, 2049, 4095,  4096,  4097,
                                  8192, 8193, 9000, 20000, 33,  100,  3,    16385, 40000, 5}) {
    grads.push_back(at::randn({size}).mul_(3).to(dtypes[next++ % dtypes.size()]));
  }
  return grads;
}

/// Sets torch's number of threads for a scope.
class ThreadsGuard {
 public:
  explicit ThreadsGuard(int threads) : previous_(at::get_num_threads()) {
    at::set_num_threads(threads);
  }
  ~ThreadsGuard() { at::set_num_threads(previous_); }
  ThreadsGuard(const ThreadsGuard&) = delete;
  ThreadsGuard& operator=(const ThreadsGuard&) = delete;

 private:
  int previous_;
};

}  // namespace ampscaler
