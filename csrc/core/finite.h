// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What counts as non-finite, for host and device: the one definition that every kernel and rule
// uses.

#include <cfloat>
#include <cstdint>

#include "core/macros.h"

namespace ampscaler::core {

// Comparisons instead of isfinite: a NaN fails them, and no compiler replaces them by a library
// call.
AMPSCALER_HOST_DEVICE inline bool is_finite(float value) {
  return value <= FLT_MAX && value >= -FLT_MAX;
}

AMPSCALER_HOST_DEVICE inline bool is_finite(double value) {
  return value <= DBL_MAX && value >= -DBL_MAX;
}

// The same on the bits of a value, as an integer comparison: compilers turn a loop over it into
// vector code, which they must not do with comparisons of floats that could trap. `exponent_mask`
// has the exponent's bits set: all of them are set in inf and NaN.
template <typename Word>
AMPSCALER_HOST_DEVICE constexpr bool is_finite_bits(Word bits, Word exponent_mask) {
  return (bits & exponent_mask) != exponent_mask;
}

inline constexpr std::uint64_t kFloat64Exponent = 0x7FF0'0000'0000'0000U;
inline constexpr std::uint32_t kFloat32Exponent = 0x7F80'0000U;
inline constexpr std::uint16_t kFloat16Exponent = 0x7C00U;
inline constexpr std::uint16_t kBFloat16Exponent = 0x7F80U;

}  // namespace ampscaler::core
