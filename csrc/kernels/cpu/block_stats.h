// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Statistics of one unit by blocks, a class per kind of element, over any vector type V. A block is
// summed fast first; if that sum is not sound, it is discarded and the block is read again by
// `sum_carefully`, which leaves out inf and NaN and has no limits of range. Likewise it is read again for its
// zeros if it has values below core::kSmallestNormalFloat16: each pass over the counters costs as much as the
// squares.
//
//   unit = 16 blocks of 1 KiB = rounds of 2 or 4 vectors, so that sums go to 4 independent accumulators

#include <cfloat>
#include <cstdint>

#include "core/ranges.h"
#include "kernels/cpu/block_vectors.h"
#include "kernels/cpu/kernel_table.h"

namespace ampscaler::cpu {
// Everything in an unnamed namespace: see kernels_impl.h.
namespace {

// float16: neither the squares nor 16 of them leave the range of float, so only inf and NaN, which
// make the sum of their lane inf or NaN, ask for care.
template <typename V>
struct Float16Format {
  static constexpr std::int16_t kInfinity = 0x7C00;
  static constexpr std::int16_t kSmallestNormalHalf = 0x0400;  // core::kSmallestNormalFloat16
  static V::FloatPair widen(V::Bits a) { return V::widen_float16(a); }
  static V::FloatPair widen_at(const char* from) { return V::load_float16(from); }
  static V::Bits narrow(V::FloatPair a) { return V::narrow_float16(a); }
  static bool is_sound(V::Floats sum, V::Bits) {
    return V::all_within(sum, 0.0F, FLT_MAX, V::splat32(1));
  }
  static double decode(std::uint32_t bits) {
    const std::uint64_t exponent = bits >> 10U;
    const double fraction = bits & 0x3FFU;
    if (exponent == 0) {
      return fraction * 0x1p-24;
    }
    return (0x1p10 + fraction) * __builtin_bit_cast(double, (1023 + exponent - 25) << 52U);
  }
};

// bfloat16: squares overflow and underflow like those of float, so small sums ask for care too. A lane of
// zeros is sound; its two 16-bit lanes of the maximum tell.
template <typename V>
struct BFloat16Format {
  static constexpr std::int16_t kInfinity = 0x7F80;
  static constexpr std::int16_t kSmallestNormalHalf = 0x3880;  // core::kSmallestNormalFloat16
  static V::FloatPair widen(V::Bits a) { return V::widen_bfloat16(a); }
  static V::FloatPair widen_at(const char* from) { return widen(V::load(from)); }
  static V::Bits narrow(V::FloatPair a) { return V::narrow_bfloat16(a); }
  static bool is_sound(V::Floats sum, V::Bits max) {
    return V::all_within(sum, core::kLowestFloatSum, FLT_MAX, max);
  }
  static double decode(std::uint32_t bits) {
    return static_cast<double>(__builtin_bit_cast(float, bits << 16U));
  }
};

// 16-bit elements: squares are summed in float over a block, at most 16 per lane and accumulator, which
// rounds by less than 2^-20 of the sum in all; then in double.
template <typename V, template <typename> typename FormatOf>
class Stats16 {
 public:
  using Format = FormatOf<V>;
  using Bits = V::Bits;
  static constexpr int kRound = 2;

  void begin_block() {
    block_max_ = V::zero();
    below_before_ = below_;
    for (auto& partial : partial_) {
      partial = V::splat(0.0F);
    }
  }

  static V::FloatPair widen(Bits value) { return Format::widen(value); }
  static V::FloatPair widen_at(const char* from) { return Format::widen_at(from); }

  // `x` is `value` widened, at best by a load of its own.
  void add(Bits value, V::FloatPair x, int place) {
    const Bits abs = V::abs16(value);
    block_max_ = V::max16(block_max_, abs);
    below_ = V::count_below16(below_, abs, V::splat16(Format::kSmallestNormalHalf));
    partial_[2 * place] = V::add_square(partial_[2 * place], x.first);
    partial_[2 * place + 1] = V::add_square(partial_[2 * place + 1], x.second);
  }

  void end_block(const char* from, std::int64_t bytes) {
    if (!V::all_equal(below_, below_before_)) {
      zeros_ = count_zeros(zeros_, from, bytes);
    }
    const auto sum = V::add(V::add(partial_[0], partial_[1]), V::add(partial_[2], partial_[3]));
    if (!Format::is_sound(sum, block_max_)) {
      merge(sum_carefully(from, bytes));
      return;
    }
    max_ = V::max16(max_, block_max_);
    for (const auto& partial : partial_) {
      const auto x = V::widen(partial);
      sum_ = V::add(sum_, V::add(x.first, x.second));
    }
  }

  void end_unit(std::int64_t bytes, UnitStats& stats) const {
    const std::int64_t zeros = V::sum16(zeros_);
    const double max = Format::decode(static_cast<std::uint32_t>(V::highest16(max_)));
    stats.sum += V::sum(sum_);
    stats.max_abs = max > stats.max_abs ? max : stats.max_abs;
    stats.zeros += zeros - padding_bytes<V>(bytes) / 2;
    stats.underflows += V::sum16(below_) - zeros;
    stats.infs += infs_;
    stats.nans += nans_;
  }

 private:
  struct Careful {
    V::Doubles sum;
    Bits max;
    std::int64_t infs;
    std::int64_t nans;
  };

  // Out of line, and by value, to keep the accumulators of the loop in registers.
  [[gnu::noinline, gnu::flatten]] static Bits count_zeros(Bits zeros, const char* from,
                                                          std::int64_t bytes) {
    for_each_vector<V>(from, bytes, [&](Bits value) {
      zeros = V::count_equal16(zeros, V::abs16(value), V::zero());
    });
    return zeros;
  }

  [[gnu::noinline, gnu::flatten]] static Careful sum_carefully(const char* from,
                                                               std::int64_t bytes) {
    typename V::Doubles sum[2] = {V::splat(0.0), V::splat(0.0)};
    Bits max = V::zero();
    Bits infs = V::zero();
    Bits nans = V::zero();
    const Bits inf = V::splat16(Format::kInfinity);
    for_each_vector<V>(from, bytes, [&](Bits value) {
      const Bits abs = V::abs16(value);
      const Bits finite = V::keep_below16(value, abs, inf);
      infs = V::count_equal16(infs, abs, inf);
      nans = V::count_below16(nans, inf, abs);
      max = V::max16(max, V::abs16(finite));
      const auto x = Format::widen(finite);
      const auto a = V::widen(x.first);
      const auto b = V::widen(x.second);
      sum[0] = V::add_square(V::add_square(sum[0], a.first), a.second);
      sum[1] = V::add_square(V::add_square(sum[1], b.first), b.second);
    });
    return {V::add(sum[0], sum[1]), max, V::sum16(infs), V::sum16(nans)};
  }

  void merge(const Careful& block) {
    sum_ = V::add(sum_, block.sum);
    max_ = V::max16(max_, block.max);
    infs_ += block.infs;
    nans_ += block.nans;
  }

  V::Floats partial_[4];
  Bits block_max_;
  V::Doubles sum_ = V::splat(0.0);
  Bits max_ = V::zero();
  Bits zeros_ = V::zero();
  Bits below_ = V::zero();  // below core::kSmallestNormalFloat16, zeros included
  Bits below_before_;       // the block
  std::int64_t infs_ = 0;
  std::int64_t nans_ = 0;
};

// float32: squares are exact in double and in its range, so only inf and NaN ask for care.
template <typename V>
class Stats32 {
 public:
  using Bits = V::Bits;
  static constexpr int kRound = 2;
  static constexpr std::int32_t kInfinity = 0x7F80'0000;

  void begin_block() {
    block_max_ = V::zero();
    below_before_ = below_;
    for (auto& partial : partial_) {
      partial = V::splat(0.0);
    }
  }

  static V::DoublePair widen(Bits value) { return V::widen(V::floats(value)); }
  static V::DoublePair widen_at(const char* from) { return V::load_doubles(from); }

  void add(Bits value, V::DoublePair x, int place) {
    constexpr auto kSmallestNormalHalf =
        __builtin_bit_cast(std::int32_t, static_cast<float>(core::kSmallestNormalFloat16));
    const Bits abs = V::abs32(value);
    block_max_ = V::max32(block_max_, abs);
    below_ = V::count_below32(below_, abs, V::splat32(kSmallestNormalHalf));
    partial_[2 * place] = V::add_square(partial_[2 * place], x.first);
    partial_[2 * place + 1] = V::add_square(partial_[2 * place + 1], x.second);
  }

  void end_block(const char* from, std::int64_t bytes) {
    if (!V::all_equal(below_, below_before_)) {
      zeros_ = count_zeros(zeros_, from, bytes);
    }
    const auto sum = V::add(V::add(partial_[0], partial_[1]), V::add(partial_[2], partial_[3]));
    if (!V::all_at_most(sum, DBL_MAX)) {
      merge(sum_carefully(from, bytes));
      return;
    }
    sum_ = V::add(sum_, sum);
    max_ = V::max32(max_, block_max_);
  }

  void end_unit(std::int64_t bytes, UnitStats& stats) const {
    const std::int64_t zeros = V::sum32(zeros_);
    const auto highest = static_cast<std::int32_t>(V::highest32(max_));
    const auto max = static_cast<double>(__builtin_bit_cast(float, highest));
    stats.sum += V::sum(sum_);
    stats.max_abs = max > stats.max_abs ? max : stats.max_abs;
    stats.zeros += zeros - padding_bytes<V>(bytes) / 4;
    stats.underflows += V::sum32(below_) - zeros;
    stats.infs += infs_;
    stats.nans += nans_;
  }

 private:
  struct Careful {
    V::Doubles sum;
    Bits max;
    std::int64_t infs;
    std::int64_t nans;
  };

  [[gnu::noinline, gnu::flatten]] static Bits count_zeros(Bits zeros, const char* from,
                                                          std::int64_t bytes) {
    for_each_vector<V>(from, bytes, [&](Bits value) {
      zeros = V::count_equal32(zeros, V::abs32(value), V::zero());
    });
    return zeros;
  }

  [[gnu::noinline, gnu::flatten]] static Careful sum_carefully(const char* from,
                                                               std::int64_t bytes) {
    typename V::Doubles sum[2] = {V::splat(0.0), V::splat(0.0)};
    Bits max = V::zero();
    Bits infs = V::zero();
    Bits nans = V::zero();
    const Bits inf = V::splat32(kInfinity);
    for_each_vector<V>(from, bytes, [&](Bits value) {
      const Bits abs = V::abs32(value);
      const Bits finite = V::keep_below32(abs, abs, inf);
      infs = V::count_equal32(infs, abs, inf);
      nans = V::count_below32(nans, inf, abs);
      max = V::max32(max, finite);
      const auto x = V::widen(V::floats(finite));
      sum[0] = V::add_square(sum[0], x.first);
      sum[1] = V::add_square(sum[1], x.second);
    });
    return {V::add(sum[0], sum[1]), max, V::sum32(infs), V::sum32(nans)};
  }

  void merge(const Careful& block) {
    sum_ = V::add(sum_, block.sum);
    max_ = V::max32(max_, block.max);
    infs_ += block.infs;
    nans_ += block.nans;
  }

  V::Doubles partial_[4];
  Bits block_max_;
  V::Doubles sum_ = V::splat(0.0);
  Bits max_ = V::zero();
  Bits zeros_ = V::zero();
  Bits below_ = V::zero();
  Bits below_before_;
  std::int64_t infs_ = 0;
  std::int64_t nans_ = 0;
};

}  // namespace
}  // namespace ampscaler::cpu
