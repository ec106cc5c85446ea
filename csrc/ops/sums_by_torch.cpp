// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The sums of core/grad_stats.h as compositions of torch's operators.

#include "ops/sums_by_torch.h"

#include <cstddef>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "core/ranges.h"

namespace ampscaler::ops {
namespace {

constexpr std::int64_t kLowWord = 0xFFFF'FFFF;
// From the bias of a float's exponent to that of a double's, in the bits of a double.
constexpr std::int64_t kRebias = 0x3800'0000'0000'0000;

// Where a floating dtype keeps what in its bits.
struct Format {
  at::ScalarType real;
  at::ScalarType word;
  int fraction_bits;
  std::int64_t bias;
};

Format format_of(at::ScalarType real) {
  return real == at::kDouble ? Format{at::kDouble, at::kLong, 52, 1023}
                             : Format{at::kFloat, at::kInt, 23, 127};
}

at::Tensor bits_of(const at::Tensor& reals, const Format& format) {
  return reals.view(format.word).to(at::kLong);
}

at::Tensor from_bits(const at::Tensor& bits, const Format& format) {
  return bits.to(format.word).view(format.real);
}

// Exactly 2^exponent; 0 below the normal numbers.
at::Tensor power_of_two(const at::Tensor& exponent, const Format& format) {
  const at::Tensor biased = (exponent + format.bias).clamp(0, 2 * format.bias);
  return from_bits(at::bitwise_left_shift(biased, format.fraction_bits), format);
}

// core::exact_term: adds `value` * 2^`shift` to the limbs.
void add_exactly(const at::Tensor& limbs, const at::Tensor& value, const at::Tensor& shift,
                 const Format& format) {
  const at::Tensor bits = bits_of(value, format);
  const at::Tensor exponent = at::bitwise_right_shift(bits, format.fraction_bits);
  const auto hidden =
      static_cast<std::int64_t>(std::uint64_t{1} << static_cast<unsigned>(format.fraction_bits));
  const at::Tensor fraction = bits.bitwise_and(hidden - 1);
  const at::Tensor significand = at::where(exponent == 0, fraction, fraction + hidden);
  // Only that of a 0 can be below the first limb.
  const at::Tensor position =
      (exponent.clamp_min(1) - (format.bias + format.fraction_bits - core::kLimbBias) + shift)
          .clamp_min(0);
  const at::Tensor offset = position.bitwise_and(31);
  const at::Tensor low = at::bitwise_left_shift(significand.bitwise_and(kLowWord), offset);
  const at::Tensor high = at::bitwise_left_shift(at::bitwise_right_shift(significand, 32), offset) +
                          at::bitwise_right_shift(low, 32);
  const at::Tensor words = at::stack(
      {low.bitwise_and(kLowWord), high.bitwise_and(kLowWord), at::bitwise_right_shift(high, 32)});
  const at::Tensor first = at::bitwise_right_shift(position, 5);
  limbs.index_add_(0, first + at::arange(3, first.options()), words);
}

// Squares are summed in multiples of the largest value's power of two, so none overflows and none that
// matters underflows.
void add_squares(const at::Tensor& limbs, const at::Tensor& magnitudes, const at::Tensor& largest,
                 const Format& format) {
  const at::Tensor exponent =
      at::bitwise_right_shift(bits_of(largest, format), format.fraction_bits).clamp_min(1) -
      format.bias;
  const at::Tensor ratios = magnitudes / power_of_two(exponent, format);
  add_exactly(limbs, (ratios * ratios).sum(), exponent * 2, format);
}

// A float32 becomes the double of the same value; both keep the order of numbers.
at::Tensor to_double_bits(const at::Tensor& largest, const Format& format) {
  at::Tensor bits = bits_of(largest, format);
  if (format.real == at::kDouble) {
    return bits;
  }
  return at::where(bits == 0, bits, at::bitwise_left_shift(bits, 29) + kRebias);
}

at::Tensor count(const at::Tensor& condition) { return condition.sum(at::kLong); }

at::Tensor sums_of_chunk(const at::Tensor& values, double norm_type, const Format& format) {
  const at::Tensor magnitudes = values.to(format.real).abs();
  const at::Tensor kept = at::where(magnitudes.isfinite(), magnitudes, 0.0);
  const at::Tensor largest = kept.amax();
  const auto integers = values.options().dtype(at::kLong);
  const at::Tensor limbs = at::zeros({core::kLimbs}, integers);
  if (norm_type == 2.0) {
    add_squares(limbs, kept, largest, format);
  } else if (norm_type != 0.0 && norm_type <= std::numeric_limits<double>::max()) {
    add_exactly(limbs, kept.pow(norm_type).sum(), at::zeros({}, integers), format);
  }
  const at::Tensor counts = at::stack({
      count(magnitudes == 0),
      count((kept > 0).logical_and(kept < core::kSmallestNormalFloat16)),
      at::full({}, values.numel(), integers),
      count(magnitudes.isinf()),
      count(magnitudes.isnan()),
      at::zeros({}, integers),
      to_double_bits(largest, format),
  });
  return at::cat({limbs, counts});
}

at::Tensor column(const at::Tensor& words, std::size_t offset) {
  return words.select(-1, word_index(offset));
}

// The limbs without carries that matter: each below 2^33.
at::Tensor limbs_of(const at::Tensor& words) {
  const at::Tensor limbs = words.narrow(-1, 0, core::kLimbs);
  const at::Tensor carries =
      at::bitwise_right_shift(limbs.narrow(-1, 0, core::kLimbs - 1), 32).bitwise_and(kLowWord);
  const at::Tensor none = at::zeros_like(limbs.narrow(-1, 0, 1));
  return limbs.bitwise_and(kLowWord) + at::cat({none, carries}, -1);
}

// core::read_sum. The exponent is even.
ScaledReals read_sums(const at::Tensor& words, const Format& format) {
  const at::Tensor limbs = limbs_of(words);
  const at::Tensor positions = at::arange(core::kLimbs, limbs.options());
  const at::Tensor top = at::where(limbs != 0, positions, 0).amax(-1, /*keepdim=*/true);
  const at::Tensor weights = power_of_two((positions - top).clamp_max(0) * 32, format);
  const at::Tensor mantissa = (limbs.to(format.real) * weights).sum(-1);
  return {mantissa, top.squeeze(-1) * 32 - core::kLimbBias};
}

}  // namespace

at::ScalarType real_type(at::Device device) { return device.is_mps() ? at::kFloat : at::kDouble; }

at::Tensor sums_by_torch(const at::Tensor& values, double norm_type, at::ScalarType real) {
  const Format format = format_of(real);
  const auto integers = values.options().dtype(at::kLong);
  std::vector<at::Tensor> sums{at::zeros({core::kGradSumsWords}, integers)};
  if (values.numel() == 0) {
    return sums.front();
  }
  for (const at::Tensor& chunk : values.reshape(-1).split(kChunkElements)) {
    sums.push_back(sums_of_chunk(chunk, norm_type, format));
  }
  if (norm_type == 0.0) {
    add_exactly(sums.front().narrow(0, 0, core::kLimbs), (values != 0).any().to(real),
                at::zeros({}, integers), format);
  }
  return merge_sums(at::stack(sums));
}

at::Tensor merge_sums(const at::Tensor& words) {
  constexpr std::int64_t kLast = word_index(offsetof(core::GradSums, max_abs_bits));
  return at::cat({words.narrow(-1, 0, kLast).sum(0), words.narrow(-1, kLast, 1).amax(0)});
}

ScaledReals stored_norms(const at::Tensor& words, double norm_type, at::ScalarType real) {
  const Format format = format_of(real);
  const at::Tensor no_exponent = at::zeros_like(words.select(-1, 0));
  if (norm_type > std::numeric_limits<double>::max()) {
    return {largest_magnitude(words, real), no_exponent};
  }
  const ScaledReals sum = read_sums(words, format);
  if (norm_type == 2.0) {
    return {sum.mantissa.sqrt(), at::bitwise_right_shift(sum.exponent, 1)};
  }
  const at::Tensor value = to_real(sum, real);
  return {norm_type == 0.0 ? value : value.pow(1.0 / norm_type), no_exponent};
}

at::Tensor to_real(const ScaledReals& number, at::ScalarType real) {
  const Format format = format_of(real);
  // Two factors, since one power of two may be beyond the range where the result is not.
  const at::Tensor half = at::bitwise_right_shift(number.exponent, 1);
  const auto factor = [&](const at::Tensor& exponent) {
    return power_of_two(exponent.clamp(1 - format.bias, format.bias), format);
  };
  return number.mantissa * factor(half) * factor(number.exponent - half);
}

at::Tensor largest_magnitude(const at::Tensor& words, at::ScalarType real) {
  const at::Tensor bits = column(words, offsetof(core::GradSums, max_abs_bits));
  if (real == at::kDouble) {
    return bits.contiguous().view(at::kDouble);
  }
  return from_bits(at::bitwise_right_shift((bits - kRebias).clamp_min(0), 29), format_of(real));
}

at::Tensor unless_nonfinite(const at::Tensor& words, const at::Tensor& finite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const at::Tensor infs = column(words, offsetof(core::GradSums, infs)) > 0;
  const at::Tensor nans = column(words, offsetof(core::GradSums, nans)) > 0;
  const at::Tensor with_infs = at::where(infs, kInfinity, finite);
  return at::where(nans, std::numeric_limits<double>::quiet_NaN(), with_infs);
}

}  // namespace ampscaler::ops
