// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// CUDA's device functions for kernels that run on the CPU. Where a call's place in the source
// matters it comes as a default argument, so that kernels need not be changed.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define SIMT_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace simt::detail {

enum class WarpOperation {
  kSync,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
  kBallot,
  kAny,
  kAll
};

/// One lane's part in a warp operation. `value` is what the lane brings and then what it gets.
struct WarpCall {
  WarpOperation operation;
  unsigned mask;
  int argument;  // source lane, distance or lane mask of a shuffle
  int width;
  std::size_t bytes;
  void* value;
};

void warp_operation(const WarpCall& call, const char* file, int line);

template <typename T>
T shuffle(WarpOperation operation, unsigned mask, T value, int argument, int width,
          const char* file, int line) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
  warp_operation({operation, mask, argument, width, sizeof(T), &value}, file, line);
  return value;
}

}  // namespace simt::detail

// ---- barriers ----

void __syncthreads(SIMT_PLACE);
int __syncthreads_or(int predicate, SIMT_PLACE);
int __syncthreads_and(int predicate, SIMT_PLACE);
int __syncthreads_count(int predicate, SIMT_PLACE);
void __syncwarp(unsigned mask = 0xFFFF'FFFFU, SIMT_PLACE);

// ---- warp operations ----

unsigned __ballot_sync(unsigned mask, int predicate, SIMT_PLACE);
int __any_sync(unsigned mask, int predicate, SIMT_PLACE);
int __all_sync(unsigned mask, int predicate, SIMT_PLACE);

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, SIMT_PLACE) {
  return simt::detail::shuffle(simt::detail::WarpOperation::kShuffle, mask, value, source, width,
                               file, line);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, SIMT_PLACE) {
  return simt::detail::shuffle(simt::detail::WarpOperation::kShuffleUp, mask, value,
                               static_cast<int>(distance), width, file, line);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, SIMT_PLACE) {
  return simt::detail::shuffle(simt::detail::WarpOperation::kShuffleDown, mask, value,
                               static_cast<int>(distance), width, file, line);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, SIMT_PLACE) {
  return simt::detail::shuffle(simt::detail::WarpOperation::kShuffleXor, mask, value, lane_mask,
                               width, file, line);
}

// ---- fences and atomics: the overloads that CUDA has ----

void __threadfence();
void __threadfence_block();
void __threadfence_system();

#define SIMT_ATOMIC(name, type) type name(type* address, type value);
SIMT_ATOMIC(atomicAdd, int)
SIMT_ATOMIC(atomicAdd, unsigned)
SIMT_ATOMIC(atomicAdd, unsigned long long)
SIMT_ATOMIC(atomicAdd, float)
SIMT_ATOMIC(atomicAdd, double)
SIMT_ATOMIC(atomicSub, int)
SIMT_ATOMIC(atomicSub, unsigned)
SIMT_ATOMIC(atomicOr, int)
SIMT_ATOMIC(atomicOr, unsigned)
SIMT_ATOMIC(atomicOr, unsigned long long)
SIMT_ATOMIC(atomicAnd, int)
SIMT_ATOMIC(atomicAnd, unsigned)
SIMT_ATOMIC(atomicAnd, unsigned long long)
SIMT_ATOMIC(atomicXor, int)
SIMT_ATOMIC(atomicXor, unsigned)
SIMT_ATOMIC(atomicXor, unsigned long long)
SIMT_ATOMIC(atomicMax, int)
SIMT_ATOMIC(atomicMax, unsigned)
SIMT_ATOMIC(atomicMax, long long)
SIMT_ATOMIC(atomicMax, unsigned long long)
SIMT_ATOMIC(atomicMin, int)
SIMT_ATOMIC(atomicMin, unsigned)
SIMT_ATOMIC(atomicMin, long long)
SIMT_ATOMIC(atomicMin, unsigned long long)
SIMT_ATOMIC(atomicExch, int)
SIMT_ATOMIC(atomicExch, unsigned)
SIMT_ATOMIC(atomicExch, unsigned long long)
SIMT_ATOMIC(atomicExch, float)
SIMT_ATOMIC(atomicInc, unsigned)
SIMT_ATOMIC(atomicDec, unsigned)
#undef SIMT_ATOMIC
int atomicCAS(int* address, int expected, int value);
unsigned atomicCAS(unsigned* address, unsigned expected, unsigned value);
unsigned long long atomicCAS(unsigned long long* address, unsigned long long expected,
                             unsigned long long value);

// ---- loads and stores ----

namespace simt::detail {
/// Here another thread may take over.
void preemption_point();
}  // namespace simt::detail

// Inlined, so that reports name the line of the kernel.
template <typename T>
[[gnu::always_inline]] inline T __ldg(const T* address) {
  return *address;
}

template <typename T>
[[gnu::always_inline]] inline T __ldcs(const T* address) {
  return *address;
}

// Loads from L2 are for what other blocks write meanwhile.
template <typename T>
[[gnu::always_inline]] inline T __ldcg(const T* address) {
  simt::detail::preemption_point();
  const T value = *address;
  simt::detail::preemption_point();
  return value;
}

template <typename T>
[[gnu::always_inline]] inline void __stcs(T* address, T value) {
  *address = value;
}

template <typename T>
[[gnu::always_inline]] inline void __stcg(T* address, T value) {
  simt::detail::preemption_point();
  *address = value;
}

// ---- bits and arithmetic ----

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }

inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __popcll(unsigned long long bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline int __clzll(long long bits) {
  return std::countl_zero(static_cast<unsigned long long>(bits));
}
inline int __ffs(int bits) { return __builtin_ffs(bits); }

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32U | low;
  return static_cast<unsigned>(both >> (shift & 31U));
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32U | low;
  return static_cast<unsigned>(both << (shift & 31U) >> 32U);
}

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline float __double2float_rn(double value) { return static_cast<float>(value); }
#if !__GLIBC_PREREQ(2, 42)
inline float rsqrtf(float value) { return 1.0F / std::sqrt(value); }
#endif

#undef SIMT_PLACE
