// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The finite test, against std::isfinite and over every 16-bit pattern.

#include "core/finite.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace ampscaler::core {
namespace {

template <typename T>
std::vector<T> edge_values() {
  using Limits = std::numeric_limits<T>;
  return {T(0),
          -T(0),
          Limits::denorm_min(),
          Limits::min(),
          T(1),
          Limits::max(),
          Limits::lowest(),
          Limits::infinity(),
          -Limits::infinity(),
          Limits::quiet_NaN(),
          -Limits::quiet_NaN()};
}

TEST(Finite, AgreesWithTheStandardLibraryAtTheEdges) {
  for (const float value : edge_values<float>()) {
    EXPECT_EQ(is_finite(value), std::isfinite(value)) << value;
    EXPECT_EQ(is_finite_bits(std::bit_cast<std::uint32_t>(value), kFloat32Exponent),
              std::isfinite(value))
        << value;
  }
  for (const double value : edge_values<double>()) {
    EXPECT_EQ(is_finite(value), std::isfinite(value)) << value;
    EXPECT_EQ(is_finite_bits(std::bit_cast<std::uint64_t>(value), kFloat64Exponent),
              std::isfinite(value))
        << value;
  }
}

// A bfloat16 is the upper half of a float; a float16 is decoded from its fields.
TEST(Finite, HoldsForEverySixteenBitPattern) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto word = static_cast<std::uint16_t>(bits);
    ASSERT_EQ(is_finite_bits(word, kBFloat16Exponent),
              std::isfinite(std::bit_cast<float>(bits << 16)))
        << bits;
    const bool half_is_finite = ((bits >> 10) & 0x1F) != 0x1F;
    ASSERT_EQ(is_finite_bits(word, kFloat16Exponent), half_is_finite) << bits;
  }
}

TEST(Finite, JudgesDoublesInTheirOwnRange) { EXPECT_TRUE(is_finite(1e300)); }

}  // namespace
}  // namespace ampscaler::core
