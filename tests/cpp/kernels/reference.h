// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What the loops must compute, one element at a time, in long double and from the fields of the formats:
// nothing is shared with the loops but the struct of results.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/portable_tables.h"

namespace ampscaler::cpu {

// The nearest value with `digits` binary digits, ties to even, of a format whose smallest normal number
// is 2^lowest_exponent; beyond `largest` infinity.
inline double rounded(double value, int digits, int lowest_exponent, double largest) {
  if (!std::isfinite(value) || value == 0) {
    return value;
  }
  const int exponent = std::max(std::ilogb(value), lowest_exponent) - (digits - 1);
  const double result = std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
  return std::abs(result) > largest ? std::copysign(HUGE_VAL, value) : result;
}

struct Half {
  using Word = std::uint16_t;
  using Compute = float;
  static constexpr DataType kType = kFloat16;
  static constexpr double kSumTolerance = 0x1p-20;
  static double value(Word word) {
    const double sign = (word & 0x8000) != 0 ? -1.0 : 1.0;
    const int exponent = (word >> 10) & 0x1F;
    const int fraction = word & 0x3FF;
    if (exponent == 0x1F) {
      return fraction == 0 ? sign * HUGE_VAL : std::nan("");
    }
    return sign *
           (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
  }
  static double stored(float product) { return rounded(product, 11, -14, 65504); }
};

struct BFloat {
  using Word = std::uint16_t;
  using Compute = float;
  static constexpr DataType kType = kBFloat16;
  static constexpr double kSumTolerance = 0x1p-20;
  static double value(Word word) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(word) << 16);
  }
  static double stored(float product) { return rounded(product, 8, -126, 0x1.FEp127); }
};

// In double, squares are added at most 32 times to one accumulator of a block; 16 blocks and the lanes
// make it less than 64 roundings of 2^-53.
struct Single {
  using Word = std::uint32_t;
  using Compute = float;
  static constexpr DataType kType = kFloat32;
  static constexpr double kSumTolerance = 0x1p-47;
  static double value(Word word) { return std::bit_cast<float>(word); }
  static double stored(float product) { return product; }
};

struct Double {
  using Word = std::uint64_t;
  using Compute = double;
  static constexpr DataType kType = kFloat64;
  static constexpr double kSumTolerance = 0x1p-47;
  static double value(Word word) { return std::bit_cast<double>(word); }
  static double stored(double product) { return product; }
};

// Calls `function.operator()<Element>()` for the four formats.
template <typename Function>
void for_each_type(Function function) {
  function.template operator()<Half>();
  function.template operator()<BFloat>();
  function.template operator()<Single>();
  function.template operator()<Double>();
}

template <typename Element>
using Words = std::vector<typename Element::Word>;

template <typename Element>
constexpr std::int64_t kUnit = 16384 / sizeof(typename Element::Word);

struct Expected {
  long double sum = 0, sum_high = 0, sum_low = 0;
  double max_abs = 0;
  std::int64_t zeros = 0, underflows = 0, infs = 0, nans = 0;
};

template <typename Element>
void add_square(Expected& expected, double value) {
  const long double abs = std::abs(value);
  if (Element::kType == kFloat64 && abs > 0x1p500) {
    expected.sum_high += std::ldexp(abs, -600) * std::ldexp(abs, -600);
  } else if (Element::kType == kFloat64 && abs < 0x1p-460) {
    expected.sum_low += std::ldexp(abs, 600) * std::ldexp(abs, 600);
  } else {
    expected.sum += abs * abs;
  }
}

template <typename Element>
Expected expected_stats(const Words<Element>& words) {
  Expected expected;
  for (const auto word : words) {
    const double value = Element::value(word);
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? expected.nans : expected.infs);
      continue;
    }
    add_square<Element>(expected, value);
    expected.max_abs = std::max(expected.max_abs, std::abs(value));
    expected.zeros += value == 0 ? 1 : 0;
    expected.underflows += value != 0 && std::abs(value) < 0x1p-14 ? 1 : 0;
  }
  return expected;
}

inline void expect_close(double got, long double expected, double tolerance, const char* what) {
  EXPECT_LE(std::abs(static_cast<long double>(got) - expected), tolerance * expected)
      << what << " " << got << " expected " << static_cast<double>(expected);
}

template <typename Element>
void expect_stats(const UnitStats& stats, const Words<Element>& words) {
  const Expected expected = expected_stats<Element>(words);
  expect_close(stats.sum, expected.sum, Element::kSumTolerance, "sum");
  expect_close(stats.sum_high, expected.sum_high, Element::kSumTolerance, "sum_high");
  expect_close(stats.sum_low, expected.sum_low, Element::kSumTolerance, "sum_low");
  EXPECT_EQ(stats.max_abs, expected.max_abs);
  EXPECT_EQ(stats.zeros, expected.zeros);
  EXPECT_EQ(stats.underflows, expected.underflows);
  EXPECT_EQ(stats.infs, expected.infs);
  EXPECT_EQ(stats.nans, expected.nans);
}

inline bool same_bits(const UnitStats& a, const UnitStats& b) {
  return std::memcmp(&a, &b, sizeof(UnitStats)) == 0;
}

template <typename Element>
UnitStats run_stats(const KernelTable& table, const Words<Element>& words) {
  UnitStats stats;
  std::memset(&stats, 0xAB, sizeof stats);  // a loop overwrites whatever was there
  table.stats[Element::kType](words.data(), static_cast<std::int64_t>(words.size()), &stats);
  return stats;
}

// Gradients of a kind: of ordinary size; zeros between; every bit pattern, so all magnitudes, inf, NaN.
enum class Kind { kOrdinary, kSparse, kAnyBits, kAnyFinite };
inline constexpr Kind kKinds[] = {Kind::kOrdinary, Kind::kSparse, Kind::kAnyBits, Kind::kAnyFinite};

template <typename Element>
typename Element::Word word_from(double value) {
  if constexpr (Element::kType == kFloat64) {
    return std::bit_cast<std::uint64_t>(value);
  } else if constexpr (Element::kType == kFloat32) {
    return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  } else if constexpr (Element::kType == kBFloat16) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >>
                                      16);
  } else {  // by search: the patterns of positive values are in order
    std::uint16_t word = 0;
    for (int bit = 0x4000; bit > 0; bit /= 2) {
      const auto next = static_cast<std::uint16_t>(word + bit);
      word = Half::value(next) <= std::abs(value) ? next : word;
    }
    return static_cast<std::uint16_t>(word | (std::signbit(value) ? 0x8000 : 0));
  }
}

template <typename Element>
typename Element::Word random_word(Kind kind, std::mt19937_64& random) {
  using Word = Element::Word;
  const auto bits = static_cast<Word>(random());
  if (kind == Kind::kAnyBits || (kind == Kind::kAnyFinite && std::isfinite(Element::value(bits)))) {
    return bits;
  }
  const double scale = std::ldexp(1.0, -static_cast<int>(random() % 12));
  const double value = (static_cast<double>(random() >> 11) * 0x1p-52 - 1) * scale;
  const bool zero = kind == Kind::kSparse && random() % 4 != 0;
  return zero ? Word(random() % 2 << (8 * sizeof(Word) - 1)) : word_from<Element>(value);
}

template <typename Element>
Words<Element> random_words(std::int64_t count, Kind kind, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Words<Element> words(static_cast<std::size_t>(count));
  for (auto& word : words) {
    word = random_word<Element>(kind, random);
  }
  return words;
}

// 0 to 200, and around vectors, blocks and units.
template <typename Element>
std::vector<std::int64_t> sizes() {
  std::vector<std::int64_t> result(201);
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<std::int64_t>(i);
  }
  for (const std::int64_t border : {256L, 512L, 1024L, kUnit<Element>, 2 * kUnit<Element>}) {
    result.insert(result.end(), {border - 1, border, border + 1, border + 13});
  }
  return result;
}

inline std::vector<const KernelTable*> tables_under_test() {
  std::vector<const KernelTable*> tables = available_kernels();
  tables.insert(tables.end(), {&kPortable8Kernels, &kPortable16Kernels});
  return tables;
}

// The body of a test, once per table.
class EveryTable : public testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& table() const { return *GetParam(); }
};

inline std::string table_name(const testing::TestParamInfo<const KernelTable*>& info) {
  return info.param->name;
}

}  // namespace ampscaler::cpu
