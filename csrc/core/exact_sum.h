// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// An exact sum of doubles, as an integer of 134 * 32 bits: additions commute and associate, so the order
// in which threads, blocks or calls add their parts cannot change a bit of the result.
//
//   sum = sum over k of limbs[k] * 2^(32 k - 2208)
//
// A limb has 64 bits for 32, so up to 2^32 terms are added before carries must be passed on. The range
// is that of squares of doubles, 2^-2148 to 2^2048. The idea is Kulisch's long accumulator.

#include <cmath>
#include <cstdint>

#include "core/macros.h"

namespace ampscaler::core {

inline constexpr int kLimbs = 134;
inline constexpr int kLimbBias = 2208;

/// Three neighbouring limbs' share of a term, each below 2^32.
struct ExactTerm {
  int limb;
  std::uint64_t words[3];
};

/// `value` * 2^`shift`, of at least 0, to its last bit. Every bit of the significand must lie in the
/// integer's range: the product is 0 or in [2^-2156, 2^2068), and the shift of a subnormal value at least
/// -1134. Squares of doubles do, also those of x * 2^600, shifted by -1200, and of x * 2^-600, shifted by
/// 1200. With a shift of 0 or 1200 infinity counts as a number that reads as infinity again.
AMPSCALER_HOST_DEVICE inline ExactTerm exact_term(double value, int shift) {
  const auto bits = __builtin_bit_cast(std::uint64_t, value);  // nvcc refuses std::bit_cast here
  const auto exponent = static_cast<int>(bits >> 52U & 0x7FFU);
  const std::uint64_t fraction = bits & 0xF'FFFF'FFFF'FFFFU;
  const std::uint64_t significand = exponent == 0 ? fraction : fraction | 1ULL << 52U;
  const int position = (exponent == 0 ? 1 : exponent) - 1075 + shift + kLimbBias;
  const int last = 32 * (kLimbs - 2) - 1;
  // No write beyond the limbs.
  const auto inside = static_cast<unsigned>(position < 0 ? 0 : position > last ? last : position);
  const unsigned offset = inside & 31U;
  const std::uint64_t low = (significand & 0xFFFF'FFFFU) << offset;
  const std::uint64_t high = ((significand >> 32U) << offset) + (low >> 32U);
  return {static_cast<int>(inside >> 5U), {low & 0xFFFF'FFFFU, high & 0xFFFF'FFFFU, high >> 32U}};
}

AMPSCALER_HOST_DEVICE inline void add_exactly(std::uint64_t* limbs, double value, int shift = 0) {
  if (value != 0.0) {
    const ExactTerm term = exact_term(value, shift);
    limbs[term.limb] += term.words[0];
    limbs[term.limb + 1] += term.words[1];
    limbs[term.limb + 2] += term.words[2];
  }
}

/// Passes on the carries, so that equal sums have equal limbs.
AMPSCALER_HOST_DEVICE inline void normalise(std::uint64_t* limbs) {
  std::uint64_t carry = 0;
  AMPSCALER_SHORT_UNROLL
  for (int k = 0; k < kLimbs - 1; ++k) {
    const std::uint64_t limb = limbs[k] + carry;
    limbs[k] = limb & 0xFFFF'FFFFU;
    carry = limb >> 32U;
  }
  limbs[kLimbs - 1] += carry;
}

/// A number beyond the range of double: mantissa * 2^exponent.
struct ScaledDouble {
  double mantissa;
  int exponent;
};

/// The value of normalised limbs to 2.3e-16, relative; the exponent is even.
AMPSCALER_HOST_DEVICE inline ScaledDouble read_sum(const std::uint64_t* limbs) {
  int top = kLimbs - 1;
  while (top > 0 && limbs[top] == 0) {
    --top;
  }
  const int lowest = top < 4 ? 0 : top - 4;
  double mantissa = 0.0;
  double weight = 1.0;
  for (int k = lowest; k <= top; ++k) {  // from small to large
    mantissa += static_cast<double>(limbs[k]) * weight;
    weight *= 4294967296.0;
  }
  return {mantissa, 32 * lowest - kLimbBias};
}

/// The square root of such a number.
AMPSCALER_HOST_DEVICE inline ScaledDouble square_root(ScaledDouble value) {
  return {std::sqrt(value.mantissa), value.exponent / 2};
}

/// The number as a double: inf or 0 if it is beyond.
AMPSCALER_HOST_DEVICE inline double to_double(ScaledDouble value) {
  return std::ldexp(value.mantissa, value.exponent);
}

}  // namespace ampscaler::core
