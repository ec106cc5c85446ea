// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// CUDA's device functions for kernels that run on the CPU. Where a call's place in the source
// matters it comes as a default argument, so that kernels need not be changed.

#include <bit>
#include <cmath>
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

// ---- fences and atomics: of CUDA's overloads those that kernels and tests use ----

void __threadfence();

#define SIMT_ATOMIC(name, type) type name(type* address, type value);
SIMT_ATOMIC(atomicAdd, int)
SIMT_ATOMIC(atomicAdd, unsigned)
SIMT_ATOMIC(atomicAdd, unsigned long long)
SIMT_ATOMIC(atomicOr, unsigned)
SIMT_ATOMIC(atomicMax, unsigned)
SIMT_ATOMIC(atomicMax, unsigned long long)
SIMT_ATOMIC(atomicMin, unsigned long long)
SIMT_ATOMIC(atomicExch, unsigned long long)
SIMT_ATOMIC(atomicExch, float)
SIMT_ATOMIC(atomicInc, unsigned)
#undef SIMT_ATOMIC

// ---- loads and stores ----

namespace simt::detail {
/// Here another thread may take over.
void preemption_point();
}  // namespace simt::detail

// Inlined, so that reports name the line of the kernel.
// Loads from L2 are for what other blocks write meanwhile.
template <typename T>
[[gnu::always_inline]] inline T __ldcg(const T* address) {
  simt::detail::preemption_point();
  const T value = *address;
  simt::detail::preemption_point();
  return value;
}

template <typename T>
[[gnu::always_inline]] inline void __stcg(T* address, T value) {
  simt::detail::preemption_point();
  *address = value;
}

// ---- bits and arithmetic ----

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }

inline float __fadd_rn(float a, float b) { return a + b; }

#undef SIMT_PLACE
