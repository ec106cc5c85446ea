// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Statistics of every table, against the reference: all patterns, sizes and addresses, and the ranges
// in which a plain sum of squares would overflow or vanish.

#include <array>
#include <cfloat>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "kernels/reference.h"

namespace ampscaler::cpu {
namespace {

using Stats = EveryTable;
INSTANTIATE_TEST_SUITE_P(Tables, Stats, testing::ValuesIn(tables_under_test()), table_name);

// The square of one 16-bit value is exact in double.
template <typename Element>
void check_every_pattern_alone(const KernelTable& table) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Words<Element> words = {static_cast<std::uint16_t>(bits)};
    const UnitStats stats = run_stats<Element>(table, words);
    const double value = Element::value(words[0]);
    ASSERT_EQ(stats.sum, std::isfinite(value) ? value * value : 0.0) << std::hex << bits;
    expect_stats<Element>(stats, words);
    ASSERT_FALSE(testing::Test::HasFailure()) << std::hex << bits;
  }
}

TEST_P(Stats, AreExactForEverySixteenBitPattern) {
  check_every_pattern_alone<Half>(table());
  check_every_pattern_alone<BFloat>(table());
}

TEST_P(Stats, HoldForEverySizeAndKindOfGradient) {
  for_each_type([&]<typename Element>() {
    for (const std::int64_t size : sizes<Element>()) {
      for (const Kind kind : kKinds) {
        const auto words = random_words<Element>(size, kind, static_cast<std::uint64_t>(size));
        expect_stats<Element>(run_stats<Element>(table(), words), words);
        ASSERT_FALSE(HasFailure()) << Element::kType << " size " << size << " kind " << int(kind);
      }
    }
  });
}

// C8, and no element outside is read into the result: around it there are NaNs.
TEST_P(Stats, AreTheSameBitsAtEveryAddress) {
  for_each_type([&]<typename Element>() {
    using Word = Element::Word;
    for (const std::int64_t size : {1L, 7L, 64L, 133L, 1000L, kUnit<Element>}) {
      const auto words = random_words<Element>(size, Kind::kAnyFinite, 5);
      const UnitStats aligned = run_stats<Element>(table(), words);
      for (std::size_t shift = 0; shift <= 64 / sizeof(Word); ++shift) {
        Words<Element> around(words.size() + shift + 64, static_cast<Word>(-1));
        std::copy(words.begin(), words.end(), around.begin() + static_cast<std::ptrdiff_t>(shift));
        UnitStats stats;
        table().stats[Element::kType](around.data() + shift, size, &stats);
        ASSERT_TRUE(same_bits(stats, aligned)) << Element::kType << " " << size << " " << shift;
      }
    }
  });
}

// What is fetched meanwhile does not matter, not even if there is no such memory.
TEST_P(Stats, OfAWholeUnitAreThoseOfAnyOther) {
  for_each_type([&]<typename Element>() {
    for (const Kind kind : kKinds) {
      const auto words = random_words<Element>(kUnit<Element>, kind, 7);
      UnitStats stats;
      stats.zeros = -1;  // what was there is not added to
      table().whole_unit_stats[Element::kType](words.data(), nullptr, &stats);
      ASSERT_TRUE(same_bits(stats, run_stats<Element>(table(), words)))
          << Element::kType << " kind " << int(kind);
      expect_stats<Element>(stats, words);
    }
  });
}

// An inf or NaN leaves everything else as a zero in its place would, but the count of zeros.
TEST_P(Stats, LeaveOutInfAndNaN) {
  const std::array<double, 4> values = {HUGE_VAL, -HUGE_VAL, std::nan(""), -std::nan("")};
  for_each_type([&]<typename Element>() {
    for (std::size_t place = 0; place < 1500; place += place < 130 ? 1 : 97) {
      auto words = random_words<Element>(1500, Kind::kOrdinary, place);
      words[place] = word_from<Element>(0.0);
      const UnitStats without = run_stats<Element>(table(), words);
      const double value = values[place % 4];
      words[place] = Element::kType == kFloat16 ? (std::isnan(value) ? 0x7E00 : 0x7C00)
                                                : word_from<Element>(value);
      UnitStats stats = run_stats<Element>(table(), words);
      expect_stats<Element>(stats, words);
      ASSERT_EQ(stats.infs + stats.nans, 1);
      ASSERT_EQ(stats.nans, std::isnan(value) ? 1 : 0);
      ASSERT_EQ(stats.zeros, without.zeros - 1);
      expect_close(stats.sum, without.sum, Element::kSumTolerance, "sum");
      ASSERT_FALSE(HasFailure()) << Element::kType << " place " << place;
    }
  });
}

// C4 and C5: the extremes of each format and the borders of its ranges, one among others.
TEST_P(Stats, NeitherOverflowNorVanishAtTheExtremes) {
  const std::vector<double> extremes = {0.0,        1.0,        0x1p-1074,
                                        0x1p-1060,  0x1p-1022,  0x1.FFFFFFFFFFFFFp-461,
                                        0x1p-460,   0x1p500,    0x1.0000000000001p500,
                                        DBL_MAX,    0x1p-149,   0x1p-133,
                                        0x1.8p-100, 0x1.FEp-46, 0x1.FEp127,
                                        FLT_MAX};
  for_each_type([&]<typename Element>() {
    std::vector<typename Element::Word> finite;
    for (const double extreme : extremes) {
      const auto word = word_from<Element>(extreme);
      if (std::isfinite(Element::value(word))) {
        finite.push_back(word);
      }
    }
    for (const auto extreme : finite) {
      for (const auto others : finite) {
        Words<Element> words(1100, others);
        words[603] = extreme;
        expect_stats<Element>(run_stats<Element>(table(), words), words);
        ASSERT_FALSE(HasFailure()) << Element::kType << ": " << Element::value(extreme) << " among "
                                   << Element::value(others);
      }
    }
  });
}

// A unit full of the largest values.
TEST_P(Stats, OfAFullUnitDoNotOverflow) {
  for_each_type([&]<typename Element>() {
    for (const double value : {65504.0, 0x1.FEp127, static_cast<double>(FLT_MAX), DBL_MAX}) {
      const auto word = word_from<Element>(value);
      if (std::isfinite(Element::value(word))) {
        const Words<Element> words(kUnit<Element>, word);
        expect_stats<Element>(run_stats<Element>(table(), words), words);
      }
    }
  });
}

// C7: equal values make roundings of one direction; a large one before them makes them large.
template <typename Element>
void check_equal_values(const KernelTable& table, double step) {
  for (double value = 1; value < 2; value += step) {
    for (const double first : {1.0, 8.0, 24.0, 90.0}) {
      auto words = Words<Element>(kUnit<Element>, word_from<Element>(value));
      for (std::size_t i = 0; i < words.size(); ++i) {
        words[i] = i % 512 < 64 ? word_from<Element>(first * value) : words[i];
      }
      expect_stats<Element>(run_stats<Element>(table, words), words);
      ASSERT_FALSE(testing::Test::HasFailure()) << value << " after " << first;
    }
  }
}

TEST_P(Stats, KeepTheirAccuracyForEqualValues) {
  check_equal_values<Half>(table(), 0x1p-7);
  check_equal_values<BFloat>(table(), 0x1p-7);
  check_equal_values<Single>(table(), 0x1.234567p-6);
}

// One value of one part in 2^15 of the others' squares, in a unit of 16-bit elements, is not lost in a
// float that has grown over the whole unit: the error would be beyond 2^-20.
TEST_P(Stats, AddBlocksInDouble) {
  auto words = Words<Half>(kUnit<Half>, word_from<Half>(1.0 + 0x1p-10));
  for (std::size_t i = 0; i < 512; ++i) {
    words[i] = word_from<Half>(160.0);
  }
  expect_stats<Half>(run_stats<Half>(table(), words), words);
}

#if defined(__SSE2__)
// C14: where the caller lets the machine flush, normal values and all of float16 are as before.
TEST_P(Stats, OfNormalValuesDoNotChangeWhereTheMachineFlushes) {
  const unsigned before = _mm_getcsr();
  for_each_type([&]<typename Element>() {
    auto words = random_words<Element>(kUnit<Element> - 3, Kind::kAnyFinite, 11);
    for (auto& word : words) {
      const bool subnormal =
          Element::kType != kFloat16 &&
          std::fpclassify(typename Element::Compute(Element::value(word))) == FP_SUBNORMAL;
      word = subnormal ? word_from<Element>(1.0) : word;
    }
    _mm_setcsr(before | 0x8040);
    const UnitStats flushing = run_stats<Element>(table(), words);
    _mm_setcsr(before);
    expect_stats<Element>(flushing, words);
  });
}
#endif

// The AVX units compute what the portable type with as many lanes does.
TEST(StatsOfUnits, EqualThePortableAlgorithmToTheBit) {
  for (const KernelTable* table : available_kernels()) {
    const std::string name = table->name;
    if (name == "baseline") {
      continue;
    }
    const KernelTable& portable = name == "avx2" ? kPortable8Kernels : kPortable16Kernels;
    for_each_type([&]<typename Element>() {
      for (const std::int64_t size : sizes<Element>()) {
        for (const Kind kind : kKinds) {
          const auto words = random_words<Element>(size, kind, static_cast<std::uint64_t>(size));
          ASSERT_TRUE(
              same_bits(run_stats<Element>(*table, words), run_stats<Element>(portable, words)))
              << name << " dtype " << Element::kType << " size " << size << " kind " << int(kind);
        }
      }
    });
  }
}

}  // namespace
}  // namespace ampscaler::cpu
