// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Statistics of one unit of float64 by blocks; see block_stats.h. The range of double ends where squares of
// doubles go on, so that there are three sums: of large, of small and of all other values.

#include <cfloat>
#include <cstdint>

#include "core/ranges.h"
#include "kernels/cpu/block_vectors.h"
#include "kernels/cpu/kernel_table.h"

namespace ampscaler::cpu {
// Everything in an unnamed namespace: see kernels_impl.h.
namespace {

// float64: a block is sound if its values are zeros or within the bounds of core/ranges.h, where squares and
// their sums are normal doubles. Values beyond are squared after an exact scaling, in sums of their own.
template <typename V>
class Stats64 {
 public:
  using Bits = V::Bits;
  using Doubles = V::Doubles;
  static constexpr int kRound = 4;
  static constexpr double kLowest = core::kLowestSquared;
  static constexpr double kHighest = core::kHighestSquared;

  void begin_block() {
    block_max_ = V::splat(0.0);
    for (auto& partial : partial_) {
      partial = V::splat(0.0);
    }
  }

  static Doubles widen(Bits value) { return V::doubles(value); }
  static Doubles widen_at(const char* from) { return V::doubles(V::load(from)); }

  void add(Bits, Doubles x, int place) {
    const Doubles abs = V::abs(x);
    block_max_ = V::max(abs, block_max_);
    zeros_ = V::count_equal(zeros_, abs, V::splat(0.0));
    low_count_ = V::count_below(low_count_, abs, V::splat(kLowest));
    below_ = V::count_below(below_, abs, V::splat(core::kSmallestNormalFloat16));
    partial_[place] = V::add_square(partial_[place], x);
  }

  void end_block(const char* from, std::int64_t bytes) {
    const Doubles sum = V::add(V::add(partial_[0], partial_[1]), V::add(partial_[2], partial_[3]));
    const bool sound = V::all_at_most(sum, DBL_MAX) && V::all_at_most(block_max_, kHighest) &&
                       V::all_equal(zeros_, low_count_);
    if (!sound) {
      merge(sum_carefully(from, bytes));
      low_count_ = zeros_;
      return;
    }
    sum_ = V::add(sum_, sum);
    max_ = V::max(block_max_, max_);
  }

  void end_unit(std::int64_t bytes, UnitStats& stats) const {
    const std::int64_t zeros = V::sum64(zeros_);
    const double max = V::highest(max_);
    stats.sum += V::sum(sum_);
    stats.sum_high += high_;
    stats.sum_low += low_;
    stats.max_abs = max > stats.max_abs ? max : stats.max_abs;
    stats.zeros += zeros - padding_bytes<V>(bytes) / 8;
    stats.underflows += V::sum64(below_) - zeros;
    stats.infs += infs_;
    stats.nans += nans_;
  }

 private:
  struct Careful {
    Doubles sum;
    Doubles max;
    std::int64_t infs;
    std::int64_t nans;
    double high;
    double low;
  };

  [[gnu::noinline, gnu::flatten]] static Careful sum_carefully(const char* from,
                                                               std::int64_t bytes) {
    Doubles sum = V::splat(0.0);
    Doubles high = V::splat(0.0);
    Doubles low = V::splat(0.0);
    Doubles max = V::splat(0.0);
    Bits infs = V::zero();
    Bits nonfinites = V::zero();
    const Doubles inf = V::splat(__builtin_inf());
    for_each_vector<V>(from, bytes, [&](Bits value) {
      const Doubles abs = V::abs(V::doubles(value));
      infs = V::count_equal(infs, abs, inf);
      nonfinites = V::count_not_below(nonfinites, abs, inf);
      max = V::max(V::keep_within(abs, abs, 0.0, DBL_MAX), max);
      sum = V::add_square(sum, V::keep_within(abs, abs, kLowest, kHighest));
      const Doubles scaled_down = V::mul(abs, V::splat(core::kHighFactor));
      const Doubles scaled_up = V::mul(abs, V::splat(core::kLowFactor));
      high = V::add_square(high, V::keep_within(scaled_down, abs, kAboveHighest, DBL_MAX));
      low = V::add_square(low, V::keep_within(scaled_up, abs, 0.0, kBelowLowest));
    });
    const std::int64_t inf_count = V::sum64(infs);
    return {sum, max, inf_count, V::sum64(nonfinites) - inf_count, V::sum(high), V::sum(low)};
  }

  void merge(const Careful& careful) {
    sum_ = V::add(sum_, careful.sum);
    max_ = V::max(careful.max, max_);
    high_ += careful.high;
    low_ += careful.low;
    infs_ += careful.infs;
    nans_ += careful.nans;
  }

  // The neighbours of the limits, outside.
  static constexpr double kAboveHighest = kHighest * (1 + DBL_EPSILON);
  static constexpr double kBelowLowest = kLowest * (1 - DBL_EPSILON / 2);

  Doubles partial_[4];
  Doubles block_max_;
  Doubles sum_ = V::splat(0.0);
  Doubles max_ = V::splat(0.0);
  Bits zeros_ = V::zero();
  Bits low_count_ = V::zero();  // below kLowest, zeros included; of sound blocks, zeros
  Bits below_ = V::zero();
  double high_ = 0;
  double low_ = 0;
  std::int64_t infs_ = 0;
  std::int64_t nans_ = 0;
};

}  // namespace
}  // namespace ampscaler::cpu
