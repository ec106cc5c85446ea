// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The loops over one unit, written once over a vector type V and compiled once per instruction set.
// Values that a loop stores go through it block by block: first the statistics, which so are those of
// the read-only loop, then the products, from the first-level cache.
//
// A unit for AVX must not leave a function behind that the linker could choose for another unit: hence
// unnamed namespaces in all headers here, and none of the standard library's templates. The test
// cpu_kernels_symbols looks into the object files.

#include <cfloat>
#include <cstdint>

#include "kernels/cpu/block_stats.h"
#include "kernels/cpu/block_stats64.h"
#include "kernels/cpu/kernel_table.h"

namespace ampscaler::cpu {
namespace {

constexpr int kCacheLine = 64;
// Values are asked for this far ahead: the counts fill the processor's window of instructions with so
// few loads that it would wait for memory and compute by turns. Not for tensors below a block.
constexpr std::int64_t kPrefetchBytes = 4096;
constexpr std::int64_t kBlockBytes = 1024;
constexpr std::int64_t kUnitBytes = 16384;  // as in core/units.h; counters of 16 bits last for it

// The four dtypes over V: statistics, the function applied in the computation type, and how to count
// finite values that became inf or NaN.
template <typename V, template <typename> typename FormatOf>
struct Elements16 {
  static constexpr int kBytes = 2;
  using Format = FormatOf<V>;
  using Stats = Stats16<V, FormatOf>;
  using Bits = V::Bits;
  using Scalar = float;

  template <typename Function>
  static Bits apply(Function function, Bits a) {
    const auto x = Format::widen(a);
    return Format::narrow({function(x.first), function(x.second)});
  }
  static Bits count_overflows(Bits counter, Bits before, Bits after) {
    const Bits inf = V::splat16(Format::kInfinity);
    const Bits was_finite = V::keep_below16(V::abs16(after), V::abs16(before), inf);
    return V::count_below16(counter, V::splat16(Format::kInfinity - 1), was_finite);
  }
  static std::int64_t sum(Bits counter) { return V::sum16(counter); }
};

template <typename V>
using Float16 = Elements16<V, Float16Format>;
template <typename V>
using BFloat16 = Elements16<V, BFloat16Format>;

template <typename V>
struct Float32 {
  static constexpr int kBytes = 4;
  using Stats = Stats32<V>;
  using Bits = V::Bits;
  using Scalar = float;

  template <typename Function>
  static Bits apply(Function function, Bits a) {
    return V::bits(function(V::floats(a)));
  }
  static Bits count_overflows(Bits counter, Bits before, Bits after) {
    const Bits inf = V::splat32(Stats::kInfinity);
    const Bits was_finite = V::keep_below32(V::abs32(after), V::abs32(before), inf);
    return V::count_below32(counter, V::splat32(Stats::kInfinity - 1), was_finite);
  }
  static std::int64_t sum(Bits counter) { return V::sum32(counter); }
};

template <typename V>
struct Float64 {
  static constexpr int kBytes = 8;
  using Stats = Stats64<V>;
  using Bits = V::Bits;
  using Scalar = double;

  template <typename Function>
  static Bits apply(Function function, Bits a) {
    return V::bits(function(V::doubles(a)));
  }
  static Bits count_overflows(Bits counter, Bits before, Bits after) {
    const auto was_finite =
        V::keep_within(V::abs(V::doubles(after)), V::abs(V::doubles(before)), 0.0, DBL_MAX);
    return V::count_not_below(counter, was_finite, V::splat(__builtin_inf()));
  }
  static std::int64_t sum(Bits counter) { return V::sum64(counter); }
};

// The functions applied to values, in the computation type. A factor that is NaN is replaced by the
// plain NaN, so that the low half of a product that is NaN is zero; see narrow_bfloat16.
template <typename Scalar>
Scalar plain_factor(float factor) {
  return factor == factor ? static_cast<Scalar>(factor) : static_cast<Scalar>(__builtin_nanf(""));
}

template <typename V, typename Scalar>
struct Product {
  Scalar factor;
  template <typename Vector>
  Vector operator()(Vector x) const {
    return V::mul(x, V::splat(factor));
  }
};

template <typename V, typename Scalar>
struct ClampedProduct {
  Scalar factor;
  Scalar limit;
  template <typename Vector>
  Vector operator()(Vector x) const {
    const Vector product = V::mul(x, V::splat(factor));
    return V::max(V::splat(-limit),
                  V::min(V::splat(limit), product));  // a NaN is the second operand
  }
};

// Calls function(0), function(1), ... with constants, so that each accumulator becomes a register.
template <int kCount, typename Function>
void repeat(Function function) {
  if constexpr (kCount > 1) {
    repeat<kCount - 1>(function);
  }
  function(kCount - 1);
}

template <typename V, typename Elements>
void add_block(typename Elements::Stats& stats, const char* from, std::int64_t bytes,
               const char* prefetch) {
  constexpr int kRound = Elements::Stats::kRound;
  stats.begin_block();
  std::int64_t done = 0;
  for (; done + kRound * V::kBytes <= bytes; done += kRound * V::kBytes) {
    for (int line = 0; line < kRound * V::kBytes; line += kCacheLine) {
      __builtin_prefetch(prefetch + done + line);
    }
    repeat<kRound>([&](int i) {
      const char* vector = from + done + i * V::kBytes;
      stats.add(V::load(vector), Elements::Stats::widen_at(vector), i);
    });
  }
  repeat<kRound>([&](int i) {
    if (done < bytes) {
      const bool whole = bytes - done >= V::kBytes;
      const auto value = whole ? V::load(from + done) : V::load_part(from + done, bytes - done);
      stats.add(value, Elements::Stats::widen(value), i);
      done += V::kBytes;
    }
  });
  stats.end_block(from, bytes);
}

// Applies `function` in place, and tells how many finite values became inf or NaN if `kCount`. The last
// vector is read again after its store: zeros behind the elements can become NaN, which do not count.
template <typename V, typename Elements, bool kCount, typename Function>
std::int64_t store_block(char* values, std::int64_t bytes, Function function) {
  typename V::Bits counter = V::zero();
  for (; bytes >= V::kBytes; values += V::kBytes, bytes -= V::kBytes) {
    const auto before = V::load(values);
    const auto after = Elements::apply(function, before);
    V::store(values, after);
    if constexpr (kCount) {
      counter = Elements::count_overflows(counter, before, after);
    }
  }
  if (bytes > 0) {
    const auto before = V::load_part(values, bytes);
    V::store_part(values, Elements::apply(function, before), bytes);
    if constexpr (kCount) {
      counter = Elements::count_overflows(counter, before, V::load_part(values, bytes));
    }
  }
  return kCount ? Elements::sum(counter) : 0;
}

// Calls `function(offset, bytes)` for each piece of at most `piece` bytes.
template <typename Function>
void for_each_piece(std::int64_t bytes, std::int64_t piece, Function function) {
  for (std::int64_t offset = 0; offset < bytes; offset += piece) {
    const std::int64_t rest = bytes - offset;
    function(offset, rest < piece ? rest : piece);
  }
}

// `store(block, bytes)` returns a number of overflows.
template <typename V, typename Elements, typename Pointer, typename Store>
UnitStats unit_stats(Pointer values, std::int64_t count, Store store) {
  UnitStats result = {};
  for_each_piece(count * Elements::kBytes, kUnitBytes, [&](std::int64_t unit, std::int64_t size) {
    typename Elements::Stats stats;
    for_each_piece(size, kBlockBytes, [&](std::int64_t block, std::int64_t bytes) {
      const char* from = values + unit + block;
      add_block<V, Elements>(stats, from, bytes,
                             bytes == kBlockBytes ? from + kPrefetchBytes : from);
      result.overflows += store(values + unit + block, bytes);
    });
    stats.end_unit(size, result);
  });
  return result;
}

// A factor of at most 1 makes no value larger, so there is nothing to count.
template <typename V, typename Elements, typename Function>
UnitStats store_and_unit_stats(char* values, std::int64_t count, Function function) {
  if (function.factor >= -1 && function.factor <= 1) {
    return unit_stats<V, Elements>(values, count, [=](char* block, std::int64_t bytes) {
      return store_block<V, Elements, false>(block, bytes, function);
    });
  }
  return unit_stats<V, Elements>(values, count, [=](char* block, std::int64_t bytes) {
    return store_block<V, Elements, true>(block, bytes, function);
  });
}

// The functions of the table. "flatten": all that they call goes into them, or the compiler's budget for
// inlining would leave accumulators in memory.
template <typename V, typename Elements>
struct Loops {
  using Scalar = Elements::Scalar;

  [[gnu::flatten]] static void stats(const void* values, std::int64_t count, UnitStats* stats) {
    *stats = unit_stats<V, Elements>(static_cast<const char*>(values), count,
                                     [](const char*, std::int64_t) { return 0; });
  }

  [[gnu::flatten]] static void whole_unit_stats(const void* values, const void* next,
                                                UnitStats* result) {
    constexpr std::int64_t kInsideUnit = kUnitBytes - kPrefetchBytes;
    const char* from = static_cast<const char*>(values);
    typename Elements::Stats stats;
    for (std::int64_t block = 0; block < kUnitBytes; block += kBlockBytes) {
      const char* prefetch = block < kInsideUnit
                                 ? from + block + kPrefetchBytes
                                 : static_cast<const char*>(next) + (block - kInsideUnit);
      add_block<V, Elements>(stats, from + block, kBlockBytes, prefetch);
    }
    *result = {};
    stats.end_unit(kUnitBytes, *result);
  }

  [[gnu::flatten]] static void unscale_with_stats(void* values, std::int64_t count, float inv_scale,
                                                  UnitStats* result) {
    if (inv_scale == 1.0F) {
      stats(values, count, result);
      return;
    }
    const Product<V, Scalar> product = {plain_factor<Scalar>(inv_scale)};
    *result = store_and_unit_stats<V, Elements>(static_cast<char*>(values), count, product);
  }

  [[gnu::flatten]] static void unscale_clamp(void* values, std::int64_t count, float inv_scale,
                                             double clip_value, UnitStats* result) {
    const ClampedProduct<V, Scalar> product = {plain_factor<Scalar>(inv_scale),
                                               static_cast<Scalar>(clip_value)};
    *result = store_and_unit_stats<V, Elements>(static_cast<char*>(values), count, product);
  }

  [[gnu::flatten]] static void multiply(void* values, std::int64_t count, float factor) {
    const Product<V, Scalar> product = {plain_factor<Scalar>(factor)};
    store_block<V, Elements, false>(static_cast<char*>(values), count * Elements::kBytes, product);
  }
};

// Entries in the order of DataType.
template <typename V>
constexpr KernelTable make_table(const char* name) noexcept {
  using F16 = Loops<V, Float16<V>>;
  using BF16 = Loops<V, BFloat16<V>>;
  using F32 = Loops<V, Float32<V>>;
  using F64 = Loops<V, Float64<V>>;
  return {
      name,
      {F16::stats, BF16::stats, F32::stats, F64::stats},
      {F16::whole_unit_stats, BF16::whole_unit_stats, F32::whole_unit_stats, F64::whole_unit_stats},
      {F16::unscale_with_stats, BF16::unscale_with_stats, F32::unscale_with_stats,
       F64::unscale_with_stats},
      {F16::unscale_clamp, BF16::unscale_clamp, F32::unscale_clamp, F64::unscale_clamp},
      {F16::multiply, BF16::multiply, F32::multiply, F64::multiply}};
}

}  // namespace
}  // namespace ampscaler::cpu
