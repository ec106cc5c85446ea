// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The vector type of the AVX2 unit: 256 bits. What each function computes is told in
// vector_portable.h.

#include <cstdint>

#include <immintrin.h>

namespace ampscaler::cpu {
// Everything in an unnamed namespace: see kernels_impl.h.
namespace {

struct Avx2 {
  static constexpr int kBytes = 32;
  using Bits = __m256i;
  using Floats = __m256;
  using Doubles = __m256d;
  struct FloatPair {
    Floats first, second;
  };
  struct DoublePair {
    Doubles first, second;
  };

  static Bits load(const char* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  // Whole words by a masked load; a 16-bit element behind them is put into its lane.
  static Bits load_part(const char* from, std::int64_t bytes) {
    const Bits words = _mm256_maskload_epi32(reinterpret_cast<const int*>(from), words_mask(bytes));
    if (bytes % 4 == 0) {
      return words;
    }
    std::uint16_t last;
    __builtin_memcpy(&last, from + bytes - 2, 2);
    const Bits lane = _mm256_cmpeq_epi32(splat32(static_cast<int>(bytes / 4)), word_indices());
    return _mm256_or_si256(words, _mm256_and_si256(lane, splat32(last)));
  }
  static void store(char* to, Bits a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a); }
  static void store_part(char* to, Bits a, std::int64_t bytes) {
    _mm256_maskstore_epi32(reinterpret_cast<int*>(to), words_mask(bytes), a);
    if (bytes % 4 != 0) {
      alignas(32) char buffer[kBytes];
      store(buffer, a);
      __builtin_memcpy(to + bytes - 2, buffer + bytes - 2, 2);
    }
  }

  static Bits zero() { return _mm256_setzero_si256(); }
  static Bits splat16(std::int16_t value) { return _mm256_set1_epi16(value); }
  static Bits splat32(std::int32_t value) { return _mm256_set1_epi32(value); }
  static Floats splat(float value) { return _mm256_set1_ps(value); }
  static Doubles splat(double value) { return _mm256_set1_pd(value); }

  static Floats floats(Bits a) { return _mm256_castsi256_ps(a); }
  static Doubles doubles(Bits a) { return _mm256_castsi256_pd(a); }
  static Bits bits(Floats a) { return _mm256_castps_si256(a); }
  static Bits bits(Doubles a) { return _mm256_castpd_si256(a); }

  static Bits abs16(Bits a) { return _mm256_and_si256(a, splat16(0x7FFF)); }
  static Bits max16(Bits a, Bits b) { return _mm256_max_epi16(a, b); }
  static Bits count_equal16(Bits counter, Bits a, Bits b) {
    return _mm256_sub_epi16(counter, _mm256_cmpeq_epi16(a, b));
  }
  static Bits count_below16(Bits counter, Bits a, Bits b) {
    return _mm256_sub_epi16(counter, _mm256_cmpgt_epi16(b, a));
  }
  static Bits keep_below16(Bits value, Bits a, Bits b) {
    return _mm256_and_si256(value, _mm256_cmpgt_epi16(b, a));
  }

  static Bits abs32(Bits a) { return _mm256_and_si256(a, splat32(0x7FFF'FFFF)); }
  static Bits max32(Bits a, Bits b) { return _mm256_max_epi32(a, b); }
  static Bits count_equal32(Bits counter, Bits a, Bits b) {
    return _mm256_sub_epi32(counter, _mm256_cmpeq_epi32(a, b));
  }
  static Bits count_below32(Bits counter, Bits a, Bits b) {
    return _mm256_sub_epi32(counter, _mm256_cmpgt_epi32(b, a));
  }
  static Bits keep_below32(Bits value, Bits a, Bits b) {
    return _mm256_and_si256(value, _mm256_cmpgt_epi32(b, a));
  }

  static Doubles abs(Doubles a) { return _mm256_andnot_pd(splat(-0.0), a); }
  static Bits count_equal(Bits counter, Doubles a, Doubles b) {
    return _mm256_sub_epi64(counter, bits(_mm256_cmp_pd(a, b, _CMP_EQ_OQ)));
  }
  static Bits count_below(Bits counter, Doubles a, Doubles b) {
    return _mm256_sub_epi64(counter, bits(_mm256_cmp_pd(a, b, _CMP_LT_OQ)));
  }
  static Bits count_not_below(Bits counter, Doubles a, Doubles b) {
    return _mm256_sub_epi64(counter, bits(_mm256_cmp_pd(a, b, _CMP_NLT_UQ)));
  }
  static Doubles keep_within(Doubles value, Doubles a, double low, double high) {
    const Doubles within = _mm256_and_pd(_mm256_cmp_pd(a, splat(low), _CMP_GE_OQ),
                                         _mm256_cmp_pd(a, splat(high), _CMP_LE_OQ));
    return _mm256_and_pd(value, within);
  }

  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static Floats add_square(Floats sum, Floats a) { return _mm256_fmadd_ps(a, a, sum); }
  static Doubles add(Doubles a, Doubles b) { return _mm256_add_pd(a, b); }
  static Doubles mul(Doubles a, Doubles b) { return _mm256_mul_pd(a, b); }
  static Doubles min(Doubles a, Doubles b) { return _mm256_min_pd(a, b); }
  static Doubles max(Doubles a, Doubles b) { return _mm256_max_pd(a, b); }
  static Doubles add_square(Doubles sum, Doubles a) { return _mm256_fmadd_pd(a, a, sum); }

  static DoublePair widen(Floats a) {
    return {_mm256_cvtps_pd(_mm256_castps256_ps128(a)),
            _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1))};
  }
  static DoublePair load_doubles(const char* from) {
    const auto* floats = reinterpret_cast<const float*>(from);
    return {_mm256_cvtps_pd(_mm_loadu_ps(floats)), _mm256_cvtps_pd(_mm_loadu_ps(floats + 4))};
  }
  static FloatPair load_float16(const char* from) {
    const auto* halves = reinterpret_cast<const __m128i*>(from);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
  }
  static FloatPair widen_float16(Bits a) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(a)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))};
  }
  static Bits narrow_float16(FloatPair a) {
    constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return _mm256_set_m128i(_mm256_cvtps_ph(a.second, kNearestEven),
                            _mm256_cvtps_ph(a.first, kNearestEven));
  }
  static FloatPair widen_bfloat16(Bits a) {
    return {floats(_mm256_slli_epi32(a, 16)),
            floats(_mm256_and_si256(a, splat32(static_cast<std::int32_t>(0xFFFF'0000U))))};
  }
  static Bits narrow_bfloat16(FloatPair a) {
    return _mm256_blend_epi16(_mm256_srli_epi32(rounded_to_bfloat16(a.first), 16),
                              rounded_to_bfloat16(a.second), 0xAA);
  }

  static bool all_within(Floats a, float low, float high, Bits or_zero) {
    const Floats within = _mm256_and_ps(_mm256_cmp_ps(a, splat(low), _CMP_GE_OQ),
                                        _mm256_cmp_ps(a, splat(high), _CMP_LE_OQ));
    const Floats zeros = floats(_mm256_cmpeq_epi32(or_zero, zero()));
    return _mm256_movemask_ps(_mm256_or_ps(within, zeros)) == 0xFF;
  }
  static bool all_at_most(Doubles a, double high) {
    return _mm256_movemask_pd(_mm256_cmp_pd(a, splat(high), _CMP_LE_OQ)) == 0xF;
  }
  static bool all_equal(Bits a, Bits b) {
    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(a, b)) == -1;
  }

  static std::int64_t sum16(Bits counter) { return sum32(_mm256_madd_epi16(counter, splat16(1))); }
  static std::int64_t sum32(Bits counter) {
    __m128i sum =
        _mm_add_epi32(_mm256_castsi256_si128(counter), _mm256_extracti128_si256(counter, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1)));
  }
  static std::int64_t sum64(Bits counter) {
    const __m128i sum =
        _mm_add_epi64(_mm256_castsi256_si128(counter), _mm256_extracti128_si256(counter, 1));
    return _mm_cvtsi128_si64(_mm_add_epi64(sum, _mm_unpackhi_epi64(sum, sum)));
  }
  // The instruction finds the lowest of eight.
  static std::int64_t highest16(Bits a) {
    const __m128i eight = _mm_max_epi16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i lowest = _mm_minpos_epu16(_mm_sub_epi16(_mm_set1_epi16(0x7FFF), eight));
    return 0x7FFF - _mm_extract_epi16(lowest, 0);
  }
  static std::int64_t highest32(Bits a) {
    __m128i highest = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    highest = _mm_max_epi32(highest, _mm_shuffle_epi32(highest, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(highest, _mm_shuffle_epi32(highest, 0xB1)));
  }
  static double highest(Doubles a) {
    const __m128d two = _mm_max_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_max_sd(two, _mm_unpackhi_pd(two, two)));
  }
  static double sum(Doubles a) {
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }

 private:
  static Bits word_indices() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
  static Bits words_mask(std::int64_t bytes) {
    return _mm256_cmpgt_epi32(splat32(static_cast<int>(bytes / 4)), word_indices());
  }
  static Bits rounded_to_bfloat16(Floats value) {
    const Bits lowest_kept = _mm256_and_si256(_mm256_srli_epi32(bits(value), 16), splat32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits(value), splat32(0x7FFF)), lowest_kept);
  }
};

}  // namespace
}  // namespace ampscaler::cpu
