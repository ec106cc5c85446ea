// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The loops that store, on every table: products rounded once, to nearest even; clamping; counts of
// overflows; and not a byte beyond the elements.

#include <cfloat>
#include <functional>

#include "kernels/reference.h"

namespace ampscaler::cpu {
namespace {

using Store = EveryTable;
INSTANTIATE_TEST_SUITE_P(Tables, Store, testing::ValuesIn(tables_under_test()), table_name);

// The last are NaNs whose low bits a carry of the rounding could run through.
const float kFactors[] = {1.0F / 65536,
                          0.5F,
                          1.0F / 3,
                          -0.3F,
                          0.99999F,
                          1.0F,
                          1.5F,
                          2.0F,
                          1e-8F,
                          3e38F,
                          1e-40F,
                          0.0F,
                          -0.0F,
                          HUGE_VALF,
                          NAN,
                          std::bit_cast<float>(0x7FFF'FFFFU),
                          std::bit_cast<float>(0xFFFF'8000U)};

// The product in the computation type, clamped there.
template <typename Element>
double expected_result(typename Element::Word word, float factor, double limit) {
  using Compute = Element::Compute;
  const auto product = static_cast<Compute>(Element::value(word)) * static_cast<Compute>(factor);
  const auto bound = static_cast<Compute>(limit);
  if (product > bound) {
    return Element::stored(bound);
  }
  return Element::stored(product < -bound ? -bound : product);
}

template <typename Element>
void expect_results(const Words<Element>& before, const Words<Element>& after, float factor,
                    double limit) {
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double expected = expected_result<Element>(before[i], factor, limit);
    const double got = Element::value(after[i]);
    const bool equal = std::isnan(expected)
                           ? std::isnan(got)
                           : got == expected && std::signbit(got) == std::signbit(expected);
    ASSERT_TRUE(equal) << "dtype " << Element::kType << " element " << i << ": "
                       << Element::value(before[i]) << " * " << factor << " gives " << got
                       << ", expected " << expected;
  }
}

template <typename Element>
std::int64_t expected_overflows(const Words<Element>& before, float factor, double limit) {
  return std::count_if(before.begin(), before.end(), [&](auto word) {
    return std::isfinite(Element::value(word)) &&
           !std::isfinite(expected_result<Element>(word, factor, limit));
  });
}

constexpr double kNoLimit = HUGE_VAL;

// Statistics are those of the read-only loop, with the overflows of the store.
template <typename Element>
void check_store(const KernelTable& table, const Words<Element>& before, float factor,
                 double limit) {
  Words<Element> after = before;
  UnitStats stats;
  std::memset(&stats, 0xAB, sizeof stats);
  const auto count = static_cast<std::int64_t>(before.size());
  if (limit == kNoLimit) {
    table.unscale_with_stats[Element::kType](after.data(), count, factor, &stats);
  } else {
    table.unscale_clamp[Element::kType](after.data(), count, factor, limit, &stats);
  }
  expect_results<Element>(before, after, factor, limit);
  EXPECT_EQ(stats.overflows, expected_overflows<Element>(before, factor, limit)) << factor;
  stats.overflows = 0;
  EXPECT_TRUE(same_bits(stats, run_stats<Element>(table, before)));
}

template <typename Element>
Words<Element> every_pattern() {
  Words<Element> words(0x10000);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = static_cast<Element::Word>(i);
  }
  return words;
}

TEST_P(Store, RoundsEverySixteenBitPatternToNearestEven) {
  for (const float factor : kFactors) {
    for (const double limit : {kNoLimit, 0.75, 1e5}) {
      check_store<Half>(table(), every_pattern<Half>(), factor, limit);
      check_store<BFloat>(table(), every_pattern<BFloat>(), factor, limit);
      ASSERT_FALSE(HasFailure()) << factor << " limit " << limit;
    }
  }
}

TEST_P(Store, HoldsForEverySizeAndKindOfGradient) {
  for_each_type([&]<typename Element>() {
    for (const std::int64_t size : sizes<Element>()) {
      const auto seed = static_cast<std::uint64_t>(size);
      for (const Kind kind : kKinds) {
        const auto words = random_words<Element>(size, kind, seed);
        check_store<Element>(table(), words, kFactors[seed % std::size(kFactors)], kNoLimit);
        check_store<Element>(table(), words, kFactors[(seed + 7) % std::size(kFactors)], 0.1);
        ASSERT_FALSE(HasFailure()) << Element::kType << " size " << size << " kind " << int(kind);
      }
    }
  });
}

TEST_P(Store, ClampsToAnyLimit) {
  for_each_type([&]<typename Element>() {
    const auto words = random_words<Element>(1500, Kind::kAnyBits, 3);
    for (const double limit : {0.0, 1e-30, 1.0, 1.0 / 3, 65520.0, 1e37, 1e300}) {
      for (const float factor : kFactors) {
        check_store<Element>(table(), words, factor, limit);
        ASSERT_FALSE(HasFailure()) << Element::kType << " limit " << limit;
      }
    }
  });
}

// An inverse scale of 1 keeps every bit, but may quieten a 16-bit NaN.
TEST_P(Store, KeepsValuesIfTheInverseScaleIsOne) {
  for_each_type([&]<typename Element>() {
    const auto before = random_words<Element>(5000, Kind::kAnyBits, 9);
    auto after = before;
    UnitStats stats;
    table().unscale_with_stats[Element::kType](after.data(), 5000, 1.0F, &stats);
    for (std::size_t i = 0; i < before.size(); ++i) {
      const bool nan = std::isnan(Element::value(before[i])) && sizeof(before[i]) == 2;
      ASSERT_TRUE(after[i] == before[i] || (nan && std::isnan(Element::value(after[i])))) << i;
    }
  });
}

TEST_P(Store, MultipliesByAnyFactor) {
  for_each_type([&]<typename Element>() {
    for (const float factor : kFactors) {
      for (const std::int64_t size : {1L, 63L, 64L, 1000L, 70000L}) {
        const auto before = random_words<Element>(size, Kind::kAnyBits, 4);
        auto after = before;
        table().multiply[Element::kType](after.data(), size, factor);
        expect_results<Element>(before, after, factor, kNoLimit);
        ASSERT_FALSE(HasFailure()) << Element::kType << " " << factor;
      }
    }
  });
}

// Zeros that fill up the last vector become NaN with an infinite factor: they are not counted.
TEST_P(Store, CountsOverflowsOfElementsOnly) {
  for_each_type([&]<typename Element>() {
    for (std::int64_t size = 1; size < 70; ++size) {
      const Words<Element> words(static_cast<std::size_t>(size), word_from<Element>(1.0));
      check_store<Element>(table(), words, HUGE_VALF, kNoLimit);
      check_store<Element>(table(), words, HUGE_VALF, 2.0);
      check_store<Element>(table(), words, NAN, kNoLimit);
    }
  });
}

// Runs `loop(values, count)` at an address off alignment, with a pattern around that must not change.
template <typename Element>
void check_neighbours(const std::function<void(void*, std::int64_t)>& loop) {
  using Word = Element::Word;
  for (std::size_t size = 0; size < 150; ++size) {
    for (const std::size_t shift : {0UL, 1UL, 5UL}) {
      Words<Element> words(shift + size + 70, static_cast<Word>(0x5A5A));
      loop(words.data() + shift, static_cast<std::int64_t>(size));
      for (std::size_t i = 0; i < words.size(); ++i) {
        const bool inside = i >= shift && i < shift + size;
        ASSERT_EQ(words[i] == static_cast<Word>(0x5A5A), !inside) << size << " at " << shift;
      }
    }
  }
}

TEST_P(Store, ChangesNothingBesideTheElements) {
  for_each_type([&]<typename Element>() {
    UnitStats stats;
    check_neighbours<Element>([&](void* values, std::int64_t count) {
      table().unscale_with_stats[Element::kType](values, count, -2.0F, &stats);
    });
    check_neighbours<Element>([&](void* values, std::int64_t count) {
      table().unscale_clamp[Element::kType](values, count, -0.5F, 1e9, &stats);
    });
    check_neighbours<Element>([&](void* values, std::int64_t count) {
      table().multiply[Element::kType](values, count, -0.5F);
    });
  });
}

// NaNs are equal here: which of two operands gives its payload is left to the compiler.
template <typename Element>
bool same_values(const Words<Element>& one, const Words<Element>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](auto a, auto b) {
    return a == b || (std::isnan(Element::value(a)) && std::isnan(Element::value(b)));
  });
}

// The AVX units store what the portable type with as many lanes does.
TEST(StoreOfUnits, EqualsThePortableAlgorithmToTheBit) {
  for (const KernelTable* table : available_kernels()) {
    const std::string name = table->name;
    const KernelTable& portable = name == "avx512" ? kPortable16Kernels : kPortable8Kernels;
    for_each_type([&]<typename Element>() {
      for (const float factor : kFactors) {
        auto one = random_words<Element>(1111, Kind::kAnyBits, 21);
        auto other = one;
        table->multiply[Element::kType](one.data(), 1111, factor);
        portable.multiply[Element::kType](other.data(), 1111, factor);
        ASSERT_TRUE(same_values<Element>(one, other))
            << name << " dtype " << Element::kType << " factor " << factor;
      }
    });
  }
}

}  // namespace
}  // namespace ampscaler::cpu
