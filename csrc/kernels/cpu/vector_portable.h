// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The vector type that any compiler with GNU vector extensions builds: the baseline, and the
// specification of what the types for AVX (vector_avx2.h, vector_avx512.h) compute lane by lane.
//
// Bits, Floats and Doubles have the same width: 2 * kFloats 16-bit lanes, kFloats floats, kFloats / 2
// doubles. They are arrays of 16-byte vectors, which x86-64 and others have in registers.

#include <cstdint>

namespace ampscaler::cpu {
// Everything in an unnamed namespace: see kernels_impl.h.
namespace {

using Int16x8 [[gnu::vector_size(16)]] = std::int16_t;
using Int32x4 [[gnu::vector_size(16)]] = std::int32_t;
using UInt32x4 [[gnu::vector_size(16)]] = std::uint32_t;
using Int64x2 [[gnu::vector_size(16)]] = std::int64_t;
using Float32x4 [[gnu::vector_size(16)]] = float;
using Float64x2 [[gnu::vector_size(16)]] = double;
using Float64x4 [[gnu::vector_size(32)]] = double;

template <typename To, typename From>
To as(From value) {
  return __builtin_bit_cast(To, value);
}

inline UInt32x4 select(UInt32x4 mask, UInt32x4 yes, UInt32x4 no) {
  return (mask & yes) | (~mask & no);
}

// All ones in the lanes where a < b. Values here are below 2^31, and SSE2 compares signed lanes only.
inline UInt32x4 below(UInt32x4 a, std::int32_t b) {
  return as<UInt32x4>(as<Int32x4>(a) < Int32x4{} + b);
}

// A float16 in the low half of each lane, to float. Subnormals go through a subtraction of normal
// floats, so they are exact even where the caller lets the machine flush subnormal floats.
inline Float32x4 float_from_half(UInt32x4 half) {
  const UInt32x4 abs = half & 0x7FFFU;
  const UInt32x4 normal = (abs << 13U) + (112U << 23U);
  const auto small = as<Float32x4>((abs << 13U) + (113U << 23U)) - 0x1p-14F;
  const UInt32x4 finite = select(below(abs, 0x400), as<UInt32x4>(small), normal);
  const auto bits = select(below(abs, 0x7C00), finite, normal + (112U << 23U));
  return as<Float32x4>(bits | ((half & 0x8000U) << 16U));
}

// To the nearest float16, ties to even; a NaN becomes quiet. Below 2^-14, adding 0.5 leaves the
// rounded subnormal in the low bits.
inline UInt32x4 half_from_float(Float32x4 value) {
  const UInt32x4 bits = as<UInt32x4>(value);
  const UInt32x4 abs = bits & 0x7FFF'FFFFU;
  const UInt32x4 normal = (abs - (112U << 23U) + 0xFFFU + ((abs >> 13U) & 1U)) >> 13U;
  const UInt32x4 small = as<UInt32x4>(as<Float32x4>(abs) + 0.5F) - as<UInt32x4>(Float32x4{} + 0.5F);
  const UInt32x4 finite = select(below(abs, 0x3880'0000), small, normal);
  const UInt32x4 infinite = UInt32x4{} + 0x7C00U;
  const UInt32x4 number = select(below(abs, 0x4780'0000), finite, infinite);
  const UInt32x4 nan = 0x7E00U | ((abs >> 13U) & 0x3FFU);
  return select(below(abs, 0x7F80'0001), number, nan) | ((bits >> 16U) & 0x8000U);
}

// The nearest bfloat16 in the upper half of each lane, ties to even. A NaN must be quiet and have zeros
// in the lower half, like a product of bfloat16 with a number or the plain NaN: so it stays a NaN.
inline UInt32x4 rounded_to_bfloat16(Float32x4 value) {
  const UInt32x4 bits = as<UInt32x4>(value);
  return bits + 0x7FFFU + ((bits >> 16U) & 1U);
}

inline float fused_add_square(float sum, float a) { return __builtin_fmaf(a, a, sum); }
inline double fused_add_square(double sum, double a) { return __builtin_fma(a, a, sum); }

inline Float32x4 fused_add_square(Float32x4 sum, Float32x4 a) {
  return Float32x4{fused_add_square(sum[0], a[0]), fused_add_square(sum[1], a[1]),
                   fused_add_square(sum[2], a[2]), fused_add_square(sum[3], a[3])};
}

inline Float64x2 fused_add_square(Float64x2 sum, Float64x2 a) {
  return Float64x2{fused_add_square(sum[0], a[0]), fused_add_square(sum[1], a[1])};
}

template <int kFloats, bool kFused>
struct Portable {
  static constexpr int kBytes = kFloats * 4;
  static constexpr int kParts = kBytes / 16;

  struct Bits {
    Int32x4 part[kParts];
  };
  struct Floats {
    Float32x4 part[kParts];
  };
  struct Doubles {
    Float64x2 part[kParts];
  };
  struct FloatPair {
    Floats first, second;
  };
  struct DoublePair {
    Doubles first, second;
  };

  template <typename Result, typename Function>
  static Result build(Function part) {
    Result result;
    for (int i = 0; i < kParts; ++i) {
      result.part[i] = as<decltype(result.part[0] + result.part[0])>(part(i));
    }
    return result;
  }

  // Memory: at any address; `*_part` touches `bytes` < kBytes only, and loads zeros beyond them.
  static Bits load(const char* from) {
    Bits result;
    __builtin_memcpy(&result, from, kBytes);
    return result;
  }
  static Bits load_part(const char* from, std::int64_t bytes) {
    Bits result = zero();
    __builtin_memcpy(&result, from, static_cast<std::size_t>(bytes));
    return result;
  }
  static void store(char* to, Bits a) { __builtin_memcpy(to, &a, kBytes); }
  static void store_part(char* to, Bits a, std::int64_t bytes) {
    __builtin_memcpy(to, &a, static_cast<std::size_t>(bytes));
  }

  static Bits zero() { return splat32(0); }
  static Bits splat16(std::int16_t value) {
    return build<Bits>([=](int) { return Int16x8{} + value; });
  }
  static Bits splat32(std::int32_t value) {
    return build<Bits>([=](int) { return Int32x4{} + value; });
  }
  static Floats splat(float value) {
    return build<Floats>([=](int) { return value - Float32x4{}; });  // a sum would lose -0
  }
  static Doubles splat(double value) {
    return build<Doubles>([=](int) { return value - Float64x2{}; });
  }

  static Floats floats(Bits a) { return as<Floats>(a); }
  static Doubles doubles(Bits a) { return as<Doubles>(a); }
  static Bits bits(Floats a) { return as<Bits>(a); }
  static Bits bits(Doubles a) { return as<Bits>(a); }

  // Integer lanes, signed: the bits of |x| compare like |x|. A counter gets 1 in each lane where the
  // comparison holds; `keep_below` gives `value` in the lanes where a < b, else 0.
  static Bits abs16(Bits a) {
    return build<Bits>([&](int i) { return a.part[i] & 0x7FFF'7FFF; });
  }
  static Bits max16(Bits a, Bits b) {
    return build<Bits>([&](int i) {
      const auto x = as<Int16x8>(a.part[i]);
      const auto y = as<Int16x8>(b.part[i]);
      return x > y ? x : y;
    });
  }
  static Bits count_equal16(Bits counter, Bits a, Bits b) {
    return build<Bits>([&](int i) {
      return as<Int16x8>(counter.part[i]) - (as<Int16x8>(a.part[i]) == as<Int16x8>(b.part[i]));
    });
  }
  static Bits count_below16(Bits counter, Bits a, Bits b) {
    return build<Bits>([&](int i) {
      return as<Int16x8>(counter.part[i]) - (as<Int16x8>(a.part[i]) < as<Int16x8>(b.part[i]));
    });
  }
  static Bits keep_below16(Bits value, Bits a, Bits b) {
    return build<Bits>([&](int i) {
      return as<Int16x8>(value.part[i]) & (as<Int16x8>(a.part[i]) < as<Int16x8>(b.part[i]));
    });
  }

  static Bits abs32(Bits a) {
    return build<Bits>([&](int i) { return a.part[i] & 0x7FFF'FFFF; });
  }
  static Bits max32(Bits a, Bits b) {
    return build<Bits>([&](int i) { return a.part[i] > b.part[i] ? a.part[i] : b.part[i]; });
  }
  static Bits count_equal32(Bits counter, Bits a, Bits b) {
    return build<Bits>([&](int i) { return counter.part[i] - (a.part[i] == b.part[i]); });
  }
  static Bits count_below32(Bits counter, Bits a, Bits b) {
    return build<Bits>([&](int i) { return counter.part[i] - (a.part[i] < b.part[i]); });
  }
  static Bits keep_below32(Bits value, Bits a, Bits b) {
    return build<Bits>([&](int i) { return value.part[i] & (a.part[i] < b.part[i]); });
  }

  // The same for doubles, with 64-bit counters.
  static Doubles abs(Doubles a) {
    return build<Doubles>([&](int i) { return as<Int64x2>(a.part[i]) & INT64_MAX; });
  }
  static Bits count_equal(Bits counter, Doubles a, Doubles b) {
    return build<Bits>(
        [&](int i) { return as<Int64x2>(counter.part[i]) - (a.part[i] == b.part[i]); });
  }
  static Bits count_below(Bits counter, Doubles a, Doubles b) {
    return build<Bits>(
        [&](int i) { return as<Int64x2>(counter.part[i]) - (a.part[i] < b.part[i]); });
  }
  static Bits count_not_below(Bits counter, Doubles a, Doubles b) {  // a NaN is not below
    return build<Bits>(
        [&](int i) { return as<Int64x2>(counter.part[i]) - ~(a.part[i] < b.part[i]); });
  }
  static Doubles keep_within(Doubles value, Doubles a, double low, double high) {
    return build<Doubles>([&](int i) {
      return as<Int64x2>(value.part[i]) & (a.part[i] >= low) & (a.part[i] <= high);
    });
  }

  // Arithmetic. Of NaN and a number, min and max give the second operand.
  static Floats add(Floats a, Floats b) {
    return build<Floats>([&](int i) { return a.part[i] + b.part[i]; });
  }
  static Floats mul(Floats a, Floats b) {
    return build<Floats>([&](int i) { return a.part[i] * b.part[i]; });
  }
  static Floats min(Floats a, Floats b) {
    return build<Floats>([&](int i) { return a.part[i] < b.part[i] ? a.part[i] : b.part[i]; });
  }
  static Floats max(Floats a, Floats b) {
    return build<Floats>([&](int i) { return a.part[i] > b.part[i] ? a.part[i] : b.part[i]; });
  }
  static Doubles add(Doubles a, Doubles b) {
    return build<Doubles>([&](int i) { return a.part[i] + b.part[i]; });
  }
  static Doubles mul(Doubles a, Doubles b) {
    return build<Doubles>([&](int i) { return a.part[i] * b.part[i]; });
  }
  static Doubles min(Doubles a, Doubles b) {
    return build<Doubles>([&](int i) { return a.part[i] < b.part[i] ? a.part[i] : b.part[i]; });
  }
  static Doubles max(Doubles a, Doubles b) {
    return build<Doubles>([&](int i) { return a.part[i] > b.part[i] ? a.part[i] : b.part[i]; });
  }

  // sum + a * a, rounded once if kFused, else twice.
  static Floats add_square(Floats sum, Floats a) {
    if constexpr (kFused) {
      return build<Floats>([&](int i) { return fused_add_square(sum.part[i], a.part[i]); });
    } else {
      return add(sum, mul(a, a));
    }
  }
  static Doubles add_square(Doubles sum, Doubles a) {
    if constexpr (kFused) {
      return build<Doubles>([&](int i) { return fused_add_square(sum.part[i], a.part[i]); });
    } else {
      return add(sum, mul(a, a));
    }
  }

  // Conversions. Floats and float16 are widened into the lower and the upper half of the lanes,
  // bfloat16 into the even and the odd ones; `load_*` is the same from memory, which other machines
  // have an instruction for. `narrow_*` is the inverse, rounded to nearest even; of NaNs,
  // narrow_bfloat16 takes quiet ones with zeros in the lower half only.
  static DoublePair widen(Floats a) { return {widen_half(a, 0), widen_half(a, kParts / 2)}; }
  static FloatPair widen_float16(Bits a) {
    return {widen_float16_half(a, 0), widen_float16_half(a, kParts / 2)};
  }
  static Bits narrow_float16(FloatPair a) {
    return build<Bits>([&](int i) {
      const Floats& from = i < kParts / 2 ? a.first : a.second;
      const int first = (2 * i) % kParts;
      const auto low = as<Int16x8>(half_from_float(from.part[first]));
      const auto high = as<Int16x8>(half_from_float(from.part[first + 1]));
      return __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14);
    });
  }
  static DoublePair load_doubles(const char* from) { return widen(floats(load(from))); }
  static FloatPair load_float16(const char* from) { return widen_float16(load(from)); }
  static FloatPair widen_bfloat16(Bits a) {
    return {build<Floats>([&](int i) { return as<UInt32x4>(a.part[i]) << 16U; }),
            build<Floats>([&](int i) { return as<UInt32x4>(a.part[i]) & 0xFFFF'0000U; })};
  }
  static Bits narrow_bfloat16(FloatPair a) {
    return build<Bits>([&](int i) {
      return (rounded_to_bfloat16(a.first.part[i]) >> 16U) |
             (rounded_to_bfloat16(a.second.part[i]) & 0xFFFF'0000U);
    });
  }

  // Tests of all lanes. `all_within`: low <= a <= high, or a 32-bit lane of `or_zero` is 0.
  static bool all_within(Floats a, float low, float high, Bits or_zero) {
    Int32x4 holds = Int32x4{} - 1;
    for (int i = 0; i < kParts; ++i) {
      holds &= ((a.part[i] >= low) & (a.part[i] <= high)) | (or_zero.part[i] == 0);
    }
    return all_set(holds);
  }
  static bool all_at_most(Doubles a, double high) {
    Int64x2 holds = Int64x2{} - 1;
    for (int i = 0; i < kParts; ++i) {
      holds &= a.part[i] <= high;
    }
    return all_set(as<Int32x4>(holds));
  }
  static bool all_equal(Bits a, Bits b) {
    Int32x4 holds = Int32x4{} - 1;
    for (int i = 0; i < kParts; ++i) {
      holds &= a.part[i] == b.part[i];
    }
    return all_set(holds);
  }

  // Over the lanes. Doubles are added as a tree: the upper half to the lower half until one is left.
  static std::int64_t sum16(Bits counter) { return sum_lanes<Int16x8>(counter); }
  static std::int64_t sum32(Bits counter) { return sum_lanes<Int32x4>(counter); }
  static std::int64_t sum64(Bits counter) { return sum_lanes<Int64x2>(counter); }
  static std::int64_t highest16(Bits a) { return highest_lane<Int16x8>(a); }
  static std::int64_t highest32(Bits a) { return highest_lane<Int32x4>(a); }
  static double highest(Doubles a) {
    Doubles result = a;
    for (int parts = kParts / 2; parts > 0; parts /= 2) {
      for (int i = 0; i < parts; ++i) {
        result.part[i] =
            result.part[i] > result.part[i + parts] ? result.part[i] : result.part[i + parts];
      }
    }
    return result.part[0][0] > result.part[0][1] ? result.part[0][0] : result.part[0][1];
  }
  static double sum(Doubles a) {
    for (int parts = kParts / 2; parts > 0; parts /= 2) {
      for (int i = 0; i < parts; ++i) {
        a.part[i] += a.part[i + parts];
      }
    }
    return a.part[0][0] + a.part[0][1];
  }

 private:
  static Doubles widen_half(Floats a, int first) {
    return build<Doubles>([&](int i) {
      const Float32x4 from = a.part[first + i / 2];
      const auto wide = __builtin_convertvector(from, Float64x4);
      return i % 2 == 0 ? __builtin_shufflevector(wide, wide, 0, 1)
                        : __builtin_shufflevector(wide, wide, 2, 3);
    });
  }
  static Floats widen_float16_half(Bits a, int first) {
    return build<Floats>([&](int i) {
      const auto from = as<Int16x8>(a.part[first + i / 2]);
      const Int16x8 zeros = {};
      const auto four = i % 2 == 0
                            ? __builtin_shufflevector(from, zeros, 0, 8, 1, 9, 2, 10, 3, 11)
                            : __builtin_shufflevector(from, zeros, 4, 12, 5, 13, 6, 14, 7, 15);
      return float_from_half(as<UInt32x4>(four));
    });
  }
  static bool all_set(Int32x4 mask) {
    const auto halves = as<Int64x2>(mask);
    return halves[0] == -1 && halves[1] == -1;
  }
  template <typename Lanes>
  static std::int64_t sum_lanes(Bits a) {
    std::int64_t result = 0;
    for (int i = 0; i < kBytes / static_cast<int>(sizeof(Lanes{}[0])); ++i) {
      constexpr int kLanes = static_cast<int>(16 / sizeof(Lanes{}[0]));
      result += as<Lanes>(a.part[i / kLanes])[i % kLanes];
    }
    return result;
  }
  template <typename Lanes>
  static std::int64_t highest_lane(Bits a) {
    std::int64_t result = 0;
    for (int i = 0; i < kBytes / static_cast<int>(sizeof(Lanes{}[0])); ++i) {
      constexpr int kLanes = static_cast<int>(16 / sizeof(Lanes{}[0]));
      const std::int64_t lane = as<Lanes>(a.part[i / kLanes])[i % kLanes];
      result = lane > result ? lane : result;
    }
    return result;
  }
};

}  // namespace
}  // namespace ampscaler::cpu
