// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The exact sum, against an integer of single bits that is added to by the rules of school: over the
// whole range of doubles, at its ends, and in every order.

#include "core/exact_sum.h"

#include <algorithm>
#include <cfloat>
#include <cstddef>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace ampscaler::core {
namespace {

using Limbs = std::vector<std::uint64_t>;

Limbs zeros() { return Limbs(kLimbs, 0); }

Limbs normalised(Limbs limbs) {
  normalise(limbs.data());
  return limbs;
}

/// The reference: bit k stands for 2^(k - 2208).
class BitSum {
 public:
  void add(double value, int shift = 0) {
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    auto significand = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
    for (int k = exponent - 53 + shift + kLimbBias; significand != 0; ++k, significand >>= 1) {
      if ((significand & 1) != 0) {
        add_bit(k);
      }
    }
  }

  Limbs limbs() const {
    Limbs result = zeros();
    for (std::size_t k = 0; k < bits_.size(); ++k) {
      result[k / 32] |= static_cast<std::uint64_t>(bits_[k]) << (k % 32);
    }
    return result;
  }

  /// |read - this| / this, in which this is cut after 60 bits.
  double relative_error(ScaledDouble read) const {
    const auto top =
        static_cast<int>(bits_.rend() - std::find(bits_.rbegin(), bits_.rend(), 1)) - 1;
    std::int64_t exact = 0;
    for (int k = top; k > top - 60; --k) {
      exact = exact << 1 | (k < 0 ? 0 : bits_[static_cast<std::size_t>(k)]);
    }
    const double aligned = std::ldexp(read.mantissa, read.exponent + kLimbBias - (top - 59));
    const std::int64_t difference = std::abs(static_cast<std::int64_t>(aligned) - exact);
    return static_cast<double>(difference) / static_cast<double>(exact);
  }

 private:
  void add_bit(int k) {
    auto place = static_cast<std::size_t>(k);
    while (bits_.at(place) == 1) {
      bits_[place++] = 0;
    }
    bits_.at(place) = 1;
  }

  std::vector<std::uint8_t> bits_ = std::vector<std::uint8_t>(32 * kLimbs, 0);
};

Limbs limbs_of(const std::vector<double>& values, int shift = 0) {
  Limbs limbs = zeros();
  for (const double value : values) {
    add_exactly(limbs.data(), value, shift);
  }
  return limbs;
}

Limbs reference_of(const std::vector<double>& values, int shift = 0) {
  BitSum sum;
  for (const double value : values) {
    sum.add(value, shift);
  }
  return sum.limbs();
}

/// Any finite double >= 0, all exponents equally likely.
double any_double(std::mt19937_64& random) {
  const std::uint64_t bits = random() >> 1U;
  const double value = __builtin_bit_cast(double, bits);
  return value <= DBL_MAX ? value : 0.0;
}

TEST(ExactTerm, HoldsEveryBitOfEveryDoubleAtEveryShiftInRange) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const double value = any_double(random);
    const int exponent = value == 0.0 ? 0 : std::ilogb(value);
    const int lowest = value < DBL_MIN ? -1134 : -2156 - exponent;
    const int shift = std::uniform_int_distribution<int>(lowest, 2067 - exponent)(random);
    ASSERT_EQ(limbs_of({value}, shift), reference_of({value}, shift)) << value << " " << shift;
  }
}

TEST(ExactTerm, SpreadsItsBitsOverTwoOrThreeLimbs) {
  const double all_ones = 0x1.FFFFFFFFFFFFFp52;  // 2^53 - 1
  const ExactTerm aligned = exact_term(all_ones, 0);
  EXPECT_EQ(aligned.limb, kLimbBias / 32);
  EXPECT_EQ(aligned.words[0], 0xFFFFFFFFU);
  EXPECT_EQ(aligned.words[1], 0x1FFFFFU);
  EXPECT_EQ(aligned.words[2], 0U);
  const ExactTerm shifted = exact_term(all_ones, 31);
  EXPECT_EQ(shifted.limb, kLimbBias / 32);
  EXPECT_EQ(shifted.words[0], 0x80000000U);
  EXPECT_EQ(shifted.words[1], 0xFFFFFFFFU);
  EXPECT_EQ(shifted.words[2], 0xFFFFFU);
}

TEST(ExactTerm, ReachesTheFirstAndTheLastLimb) {
  const double low = 0x1.FFFFFFFFFFFFFp-1000;  // times 2^-1156: the last bit is 2^-2208
  EXPECT_EQ(exact_term(low, -1156).limb, 0);
  EXPECT_EQ(limbs_of({low}, -1156)[0], 0xFFFFFFFFU);
  EXPECT_EQ(exact_term(0x1p-1074, -1134).words[0], 1U);
  const ExactTerm high = exact_term(DBL_MAX, 1044);  // just below 2^2068
  EXPECT_EQ(high.limb + 2, kLimbs - 1);
  EXPECT_EQ(high.words[2], 0xFFFFFU);
}

TEST(ExactTerm, OfZeroAddsNothing) {
  EXPECT_EQ(limbs_of({0.0, -0.0}, -1200), zeros());
  for (const double zero : {0.0, -0.0}) {
    const ExactTerm term = exact_term(zero, 0);
    EXPECT_EQ(term.words[0] | term.words[1] | term.words[2], 0U);
    EXPECT_TRUE(term.limb >= 0 && term.limb + 2 < kLimbs);
  }
}

// A power |x|^p may overflow: the norm must then not look finite.
TEST(ExactTerm, OfInfinityReadsAsInfinity) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_double(read_sum(normalised(limbs_of({1.0, infinity})).data())), infinity);
  const ScaledDouble scaled = read_sum(normalised(limbs_of({1.0, infinity}, 1200)).data());
  EXPECT_EQ(to_double(square_root(scaled)), infinity);
}

TEST(ExactTerm, NeverLiesOutsideOfTheLimbs) {
  for (const double value : {0x1p-1074, 1.0, DBL_MAX, std::numeric_limits<double>::infinity()}) {
    for (int shift = -5000; shift <= 5000; ++shift) {
      const ExactTerm term = exact_term(value, shift);
      ASSERT_TRUE(term.limb >= 0 && term.limb + 2 < kLimbs) << value << " " << shift;
    }
  }
}

struct Range {
  const char* name;
  double least;
  double most;
  double factor;  // exact, a power of two; squares are added with the shift that undoes it
  int shift;
  int terms;  // of one unit
};

// The ranges that the kernels split float64 elements into, and whole units of float32.
const Range kRanges[] = {
    {"float32", 0x1p-149, FLT_MAX, 1.0, 0, 4096},
    {"float64, usual", 0x1p-460, 0x1p500, 1.0, 0, 2048},
    {"float64, large", 0x1.0000000000001p500, DBL_MAX, 0x1p-600, 1200, 2048},
    {"float64, small", 0x1p-1074, 0x1.FFFFFFFFFFFFFp-461, 0x1p600, -1200, 2048},
};

TEST(ExactSum, HoldsTheSquaresOfEveryRangeOfTheKernels) {
  for (const Range& range : kRanges) {
    const double least = range.least * range.factor;
    const double most = range.most * range.factor;
    double full_unit = 0.0;
    for (int i = 0; i < range.terms; ++i) {
      full_unit += most * most;
    }
    for (const double value : {least * least, most * most, full_unit}) {
      const ExactTerm term = exact_term(value, range.shift);
      EXPECT_TRUE(value >= DBL_MIN && value <= DBL_MAX) << range.name;
      EXPECT_TRUE(term.limb >= 0 && term.limb + 2 < kLimbs) << range.name;
    }
    const std::vector<double> values{least * least, full_unit, most * most};
    EXPECT_EQ(normalised(limbs_of(values, range.shift)), reference_of(values, range.shift))
        << range.name;
  }
}

TEST(ExactSum, OfTheSmallestDoublesSquareHasItsRoot) {
  const double scaled = 0x1p-1074 * 0x1p600;
  const Limbs limbs = limbs_of({scaled * scaled}, -1200);
  Limbs expected = zeros();
  expected[(kLimbBias - 2148) / 32] = 1U << (kLimbBias - 2148) % 32;
  EXPECT_EQ(limbs, expected);
  EXPECT_EQ(to_double(square_root(read_sum(limbs.data()))), 0x1p-1074);
}

TEST(ExactSum, OfSquaresBeyondDoubleHasItsRoot) {
  const double scaled = 1.7e308 * 0x1p-600;
  const ScaledDouble root =
      square_root(read_sum(normalised(limbs_of({scaled * scaled, scaled * scaled}, 1200)).data()));
  EXPECT_EQ(to_double(root), std::numeric_limits<double>::infinity());
  EXPECT_DOUBLE_EQ(to_double({root.mantissa * 0.5, root.exponent}), 1.7e308 * std::sqrt(0.5));
}

TEST(ExactSum, OfAMillionTermsNeedsNoCarries) {
  for (const int shift : {0, 1, 17, 31}) {
    const double value = 0x1.FFFFFFFFFFFFFp52;
    Limbs limbs = zeros();
    for (int i = 0; i < 1 << 20; ++i) {
      add_exactly(limbs.data(), value, shift);
    }
    EXPECT_EQ(normalised(limbs), reference_of({value}, shift + 20)) << shift;
  }
}

TEST(ExactSum, HasRoomForTwoToTheThirtyTwoTermsInEveryLimb) {
  const std::uint64_t fullest = 0xFFFF'FFFF'0000'0000U;  // 2^32 times the largest word
  Limbs limbs(kLimbs, fullest);
  limbs.back() = 0;
  BitSum sum;
  for (int k = 0; k < kLimbs - 1; ++k) {
    sum.add(4294967295.0, 32 * k + 32 - kLimbBias);
  }
  EXPECT_EQ(normalised(limbs), sum.limbs());
}

TEST(ExactSum, IsTheSameInAnyOrderAndAnySplit) {
  std::mt19937_64 random(2);
  std::vector<double> values(3000);
  std::generate(values.begin(), values.end(), [&] { return any_double(random); });
  const Limbs expected = reference_of(values);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(values.begin(), values.end(), random);
    Limbs merged = zeros();
    for (auto next = values.begin(); next != values.end();) {
      const auto size = std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(random() % 900),
                                                 values.end() - next);
      Limbs part = limbs_of({next, next + size});
      part =
          random() % 2 == 0 ? part : normalised(part);  // merging may come before or after carries
      std::transform(merged.begin(), merged.end(), part.begin(), merged.begin(), std::plus<>());
      next += size;
    }
    ASSERT_EQ(normalised(merged), expected);
  }
}

TEST(ReadSum, IsRightToTheLastBitOrTwo) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform(0.5, 1.0);
  double worst = 0.0;
  for (int i = 0; i < 20000; ++i) {
    const double first = std::max(any_double(random), 0x1p-1000);
    const int count = static_cast<int>(random() % 8);
    Limbs limbs = zeros();
    BitSum sum;
    for (int k = 0; k <= count; ++k) {  // neighbours, so that limbs fill up, and ones far away
      const double value =
          k % 4 == 3 ? any_double(random) : uniform(random) * std::ldexp(first, -40 * k);
      add_exactly(limbs.data(), value);
      sum.add(value);
    }
    add_exactly(limbs.data(), first);
    sum.add(first);
    const ScaledDouble read = read_sum(normalised(limbs).data());
    ASSERT_EQ(read.exponent % 2, 0);
    worst = std::max(worst, sum.relative_error(read));
  }
  EXPECT_LE(worst, 2.3e-16);
  EXPECT_GT(worst, 1e-17);  // else the terms were too few to round
}

TEST(ReadSum, OfNothingIsZero) {
  EXPECT_EQ(to_double(read_sum(zeros().data())), 0.0);
  EXPECT_EQ(to_double(square_root(read_sum(zeros().data()))), 0.0);
}

TEST(ReadSum, GivesDoublesBack) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 20000; ++i) {
    const double value = any_double(random);
    ASSERT_EQ(to_double(read_sum(limbs_of({value}).data())), value);
  }
}

TEST(SquareRoot, OfSquaresIsExactWhereverTheyLie) {
  for (int exponent = -1000; exponent <= 1000; ++exponent) {
    const double root = 94906265.0;  // its square has 53 bits
    const Limbs limbs = limbs_of({root * root}, 2 * exponent);
    const ScaledDouble read = square_root(read_sum(limbs.data()));
    ASSERT_EQ(std::ldexp(read.mantissa, read.exponent - exponent), root) << exponent;
  }
}

}  // namespace
}  // namespace ampscaler::core
