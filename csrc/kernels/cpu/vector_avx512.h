// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The vector type of the AVX-512 unit: 512 bits. What each function computes is told in
// vector_portable.h.

#include <cstdint>

#include <immintrin.h>

namespace ampscaler::cpu {
// Everything in an unnamed namespace: see kernels_impl.h.
namespace {

struct Avx512 {
  static constexpr int kBytes = 64;
  using Bits = __m512i;
  using Floats = __m512;
  using Doubles = __m512d;
  struct FloatPair {
    Floats first, second;
  };
  struct DoublePair {
    Doubles first, second;
  };

  static Bits load(const char* from) { return _mm512_loadu_si512(from); }
  static Bits load_part(const char* from, std::int64_t bytes) {
    return _mm512_maskz_loadu_epi8(first_bytes(bytes), from);
  }
  static void store(char* to, Bits a) { _mm512_storeu_si512(to, a); }
  static void store_part(char* to, Bits a, std::int64_t bytes) {
    _mm512_mask_storeu_epi8(to, first_bytes(bytes), a);
  }

  static Bits zero() { return _mm512_setzero_si512(); }
  static Bits splat16(std::int16_t value) { return _mm512_set1_epi16(value); }
  static Bits splat32(std::int32_t value) { return _mm512_set1_epi32(value); }
  static Floats splat(float value) { return _mm512_set1_ps(value); }
  static Doubles splat(double value) { return _mm512_set1_pd(value); }

  static Floats floats(Bits a) { return _mm512_castsi512_ps(a); }
  static Doubles doubles(Bits a) { return _mm512_castsi512_pd(a); }
  static Bits bits(Floats a) { return _mm512_castps_si512(a); }
  static Bits bits(Doubles a) { return _mm512_castpd_si512(a); }

  static Bits abs16(Bits a) { return _mm512_and_si512(a, splat16(0x7FFF)); }
  static Bits max16(Bits a, Bits b) { return _mm512_max_epi16(a, b); }
  static Bits count_equal16(Bits counter, Bits a, Bits b) {
    return _mm512_mask_sub_epi16(counter, _mm512_cmpeq_epi16_mask(a, b), counter, splat16(-1));
  }
  static Bits count_below16(Bits counter, Bits a, Bits b) {
    return _mm512_mask_sub_epi16(counter, _mm512_cmplt_epi16_mask(a, b), counter, splat16(-1));
  }
  static Bits keep_below16(Bits value, Bits a, Bits b) {
    return _mm512_maskz_mov_epi16(_mm512_cmplt_epi16_mask(a, b), value);
  }

  static Bits abs32(Bits a) { return _mm512_and_si512(a, splat32(0x7FFF'FFFF)); }
  static Bits max32(Bits a, Bits b) { return _mm512_max_epi32(a, b); }
  static Bits count_equal32(Bits counter, Bits a, Bits b) {
    return _mm512_mask_sub_epi32(counter, _mm512_cmpeq_epi32_mask(a, b), counter, splat32(-1));
  }
  static Bits count_below32(Bits counter, Bits a, Bits b) {
    return _mm512_mask_sub_epi32(counter, _mm512_cmplt_epi32_mask(a, b), counter, splat32(-1));
  }
  static Bits keep_below32(Bits value, Bits a, Bits b) {
    return _mm512_maskz_mov_epi32(_mm512_cmplt_epi32_mask(a, b), value);
  }

  static Doubles abs(Doubles a) { return _mm512_andnot_pd(splat(-0.0), a); }
  static Bits count_equal(Bits counter, Doubles a, Doubles b) {
    return count(counter, _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ));
  }
  static Bits count_below(Bits counter, Doubles a, Doubles b) {
    return count(counter, _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ));
  }
  static Bits count_not_below(Bits counter, Doubles a, Doubles b) {
    return count(counter, _mm512_cmp_pd_mask(a, b, _CMP_NLT_UQ));
  }
  static Doubles keep_within(Doubles value, Doubles a, double low, double high) {
    const __mmask8 within = _mm512_cmp_pd_mask(a, splat(low), _CMP_GE_OQ) &
                            _mm512_cmp_pd_mask(a, splat(high), _CMP_LE_OQ);
    return _mm512_maskz_mov_pd(within, value);
  }

  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static Floats add_square(Floats sum, Floats a) { return _mm512_fmadd_ps(a, a, sum); }
  static Doubles add(Doubles a, Doubles b) { return _mm512_add_pd(a, b); }
  static Doubles mul(Doubles a, Doubles b) { return _mm512_mul_pd(a, b); }
  static Doubles min(Doubles a, Doubles b) { return _mm512_min_pd(a, b); }
  static Doubles max(Doubles a, Doubles b) { return _mm512_max_pd(a, b); }
  static Doubles add_square(Doubles sum, Doubles a) { return _mm512_fmadd_pd(a, a, sum); }

  static DoublePair widen(Floats a) {
    return {_mm512_cvtps_pd(_mm512_castps512_ps256(a)),
            _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1))};
  }
  static DoublePair load_doubles(const char* from) {
    const auto* floats = reinterpret_cast<const float*>(from);
    return {_mm512_cvtps_pd(_mm256_loadu_ps(floats)), _mm512_cvtps_pd(_mm256_loadu_ps(floats + 8))};
  }
  static FloatPair load_float16(const char* from) {
    const auto* halves = reinterpret_cast<const __m256i*>(from);
    return {_mm512_cvtph_ps(_mm256_loadu_si256(halves)),
            _mm512_cvtph_ps(_mm256_loadu_si256(halves + 1))};
  }
  static FloatPair widen_float16(Bits a) {
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(a)),
            _mm512_cvtph_ps(_mm512_extracti64x4_epi64(a, 1))};
  }
  static Bits narrow_float16(FloatPair a) {
    constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const Bits low = _mm512_castsi256_si512(_mm512_cvtps_ph(a.first, kNearestEven));
    return _mm512_inserti64x4(low, _mm512_cvtps_ph(a.second, kNearestEven), 1);
  }
  static FloatPair widen_bfloat16(Bits a) {
    return {floats(_mm512_slli_epi32(a, 16)),
            floats(_mm512_and_si512(a, splat32(static_cast<std::int32_t>(0xFFFF'0000U))))};
  }
  static Bits narrow_bfloat16(FloatPair a) {
    return _mm512_mask_blend_epi16(0xAAAA'AAAA, _mm512_srli_epi32(rounded_to_bfloat16(a.first), 16),
                                   rounded_to_bfloat16(a.second));
  }

  static bool all_within(Floats a, float low, float high, Bits or_zero) {
    const unsigned within = _mm512_cmp_ps_mask(a, splat(low), _CMP_GE_OQ) &
                            _mm512_cmp_ps_mask(a, splat(high), _CMP_LE_OQ);
    return (within | _mm512_testn_epi32_mask(or_zero, or_zero)) == 0xFFFF;
  }
  static bool all_at_most(Doubles a, double high) {
    return _mm512_cmp_pd_mask(a, splat(high), _CMP_LE_OQ) == 0xFF;
  }
  static bool all_equal(Bits a, Bits b) { return _mm512_cmpneq_epi32_mask(a, b) == 0; }

  static std::int64_t sum16(Bits counter) { return sum32(_mm512_madd_epi16(counter, splat16(1))); }
  static std::int64_t sum32(Bits counter) { return _mm512_reduce_add_epi32(counter); }
  static std::int64_t sum64(Bits counter) { return _mm512_reduce_add_epi64(counter); }
  // The instruction finds the lowest of eight.
  static std::int64_t highest16(Bits a) {
    const __m256i sixteen =
        _mm256_max_epi16(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    const __m128i eight =
        _mm_max_epi16(_mm256_castsi256_si128(sixteen), _mm256_extracti128_si256(sixteen, 1));
    const __m128i lowest = _mm_minpos_epu16(_mm_sub_epi16(_mm_set1_epi16(0x7FFF), eight));
    return 0x7FFF - _mm_extract_epi16(lowest, 0);
  }
  static std::int64_t highest32(Bits a) { return _mm512_reduce_max_epi32(a); }
  static double highest(Doubles a) { return _mm512_reduce_max_pd(a); }
  static double sum(Doubles a) {
    const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }

 private:
  static __mmask64 first_bytes(std::int64_t bytes) {
    return (std::uint64_t{1} << static_cast<std::uint64_t>(bytes)) - 1;
  }
  static Bits count(Bits counter, __mmask8 mask) {
    return _mm512_mask_sub_epi64(counter, mask, counter, _mm512_set1_epi64(-1));
  }
  static Bits rounded_to_bfloat16(Floats value) {
    const Bits number = _mm512_add_epi32(bits(value), splat32(0x7FFF));
    const __mmask16 odd = _mm512_test_epi32_mask(bits(value), splat32(0x1'0000));
    return _mm512_mask_add_epi32(number, odd, number, splat32(1));
  }
};

}  // namespace
}  // namespace ampscaler::cpu
