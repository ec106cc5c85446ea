// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Gradients in registers: 16 bytes at a time as four words, whatever the dtype, and the numbers in them.
// A tensor whose address is no multiple of 16 is read with the widest loads that it allows, so that
// the same elements come to the same thread.

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/data_type.h"
#include "core/finite.h"
#include "kernels/cuda/device_compat.cuh"

namespace ampscaler::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xFFFF'FFFFU;
inline constexpr int kVectorBytes = 16;

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x % kWarpSize); }

/// 16 bytes of a tensor.
struct Words {
  std::uint32_t word[4];
};

// ---- single elements ----

// The type in which products are formed.
template <typename T>
struct Compute {
  using Type = float;
};
template <>
struct Compute<double> {
  using Type = double;
};

__device__ inline float load(float value) { return value; }
__device__ inline double load(double value) { return value; }
__device__ inline float load(__half value) { return __half2float(value); }
__device__ inline float load(__nv_bfloat16 value) { return __bfloat162float(value); }

__device__ inline void store(float& target, float value) { target = value; }
__device__ inline void store(double& target, double value) { target = value; }
__device__ inline void store(__half& target, float value) { target = __float2half_rn(value); }
__device__ inline void store(__nv_bfloat16& target, float value) {
  target = __float2bfloat16_rn(value);
}

// ---- elements of words ----

// Two 16-bit numbers lie in a word, the first in its low half; one float; half a double.
__device__ inline float decode(const Words& words, int i, float /*dtype*/) {
  return __uint_as_float(words.word[i]);
}
__device__ inline double decode(const Words& words, int i, double /*dtype*/) {
  const std::uint64_t high = words.word[2L * i + 1];
  return __longlong_as_double(static_cast<long long>(high << 32U | words.word[2L * i]));
}
__device__ inline float decode(const Words& words, int i, __half /*dtype*/) {
  __half_raw raw;
  raw.x = static_cast<std::uint16_t>(words.word[i / 2] >> (i % 2 == 0 ? 0U : 16U));
  return __half2float(__half(raw));
}
__device__ inline float decode(const Words& words, int i, __nv_bfloat16 /*dtype*/) {
  const std::uint32_t word = words.word[i / 2];
  return __uint_as_float(i % 2 == 0 ? word << 16U : word & 0xFFFF'0000U);
}

__device__ inline void encode(Words& words, int i, float value, float /*dtype*/) {
  words.word[i] = __float_as_uint(value);
}
__device__ inline void encode(Words& words, int i, double value, double /*dtype*/) {
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(value));
  words.word[2L * i] = static_cast<std::uint32_t>(bits);
  words.word[2L * i + 1] = static_cast<std::uint32_t>(bits >> 32U);
}

__device__ inline std::uint32_t bits_of(float value, __half /*dtype*/) {
  return static_cast<__half_raw>(__float2half_rn(value)).x;
}
__device__ inline std::uint32_t bits_of(float value, __nv_bfloat16 /*dtype*/) {
  return static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(value)).x;
}

// Elements must be encoded in order: the first of a word replaces it.
template <typename T>
__device__ void encode(Words& words, int i, float value, T dtype) {
  const std::uint32_t bits = bits_of(value, dtype);
  words.word[i / 2] = i % 2 == 0 ? (words.word[i / 2] & 0xFFFF'0000U) | bits
                                 : (words.word[i / 2] & 0xFFFFU) | bits << 16U;
}

template <typename T>
inline constexpr int kPerVector = kVectorBytes / static_cast<int>(sizeof(T));

// ---- memory ----

/// The widest access, of 2 to 16 bytes, that `address` allows.
__device__ inline int access_width(std::uint64_t address) {
  const unsigned low = static_cast<unsigned>(address) & 15U;
  return low == 0 ? 16 : (low & 7U) == 0 ? 8 : (low & 3U) == 0 ? 4 : 2;
}

// One vector by accesses of type `Access`, each of which has that alignment.
__device__ inline Words load_words(const uint4* from) {
  const uint4 value = *from;
  return {{value.x, value.y, value.z, value.w}};
}
__device__ inline Words load_words(const uint2* from) {
  const uint2 low = from[0];
  const uint2 high = from[1];
  return {{low.x, low.y, high.x, high.y}};
}
__device__ inline Words load_words(const std::uint32_t* from) {
  return {{from[0], from[1], from[2], from[3]}};
}
__device__ inline Words load_words(const std::uint16_t* from) {
  Words words;
  AMPSCALER_UNROLL
  for (int i = 0; i < 4; ++i) {
    words.word[i] = from[2L * i] | static_cast<std::uint32_t>(from[2L * i + 1]) << 16U;
  }
  return words;
}

__device__ inline void store_words(uint4* to, const Words& words) {
  *to = make_uint4(words.word[0], words.word[1], words.word[2], words.word[3]);
}
__device__ inline void store_words(uint2* to, const Words& words) {
  to[0] = make_uint2(words.word[0], words.word[1]);
  to[1] = make_uint2(words.word[2], words.word[3]);
}
__device__ inline void store_words(std::uint32_t* to, const Words& words) {
  AMPSCALER_UNROLL
  for (int i = 0; i < 4; ++i) {
    to[i] = words.word[i];
  }
}
__device__ inline void store_words(std::uint16_t* to, const Words& words) {
  AMPSCALER_UNROLL
  for (int i = 0; i < 4; ++i) {
    to[2L * i] = static_cast<std::uint16_t>(words.word[i]);
    to[2L * i + 1] = static_cast<std::uint16_t>(words.word[i] >> 16U);
  }
}

// Calls `function` with the memory of `values` as a pointer to accesses of that width. It is the same in all
// threads of a warp. A loop for each width keeps more registers free than a choice at each load.
template <typename T, typename Function>
__device__ void with_access(T* values, Function function) {
  const int width = access_width(reinterpret_cast<std::uint64_t>(values));
  if (width == 16) {
    function(reinterpret_cast<uint4*>(values));
  } else if (sizeof(T) == 8 || width == 8) {
    function(reinterpret_cast<uint2*>(values));
  } else if constexpr (sizeof(T) == 4) {
    function(reinterpret_cast<std::uint32_t*>(values));
  } else if constexpr (sizeof(T) == 2) {
    if (width == 4) {
      function(reinterpret_cast<std::uint32_t*>(values));
    } else {
      function(reinterpret_cast<std::uint16_t*>(values));
    }
  }
}

template <typename Access>
__device__ Access* vector_at(Access* memory, int vector) {
  return memory + vector * (kVectorBytes / static_cast<int>(sizeof(Access)));
}

// The vectors of a group are 512 bytes apart: neighbouring lanes have neighbouring vectors. All loads are
// issued before the first is waited for.
template <int kVectors, typename Access>
__device__ void load_group(Words (&group)[kVectors], const Access* memory) {
  AMPSCALER_UNROLL
  for (int vector = 0; vector < kVectors; ++vector) {
    group[vector] = load_words(vector_at(memory, vector * kWarpSize));
  }
}

template <int kVectors, typename Access>
__device__ void store_group(const Words (&group)[kVectors], Access* memory) {
  AMPSCALER_UNROLL
  for (int vector = 0; vector < kVectors; ++vector) {
    store_words(vector_at(memory, vector * kWarpSize), group[vector]);
  }
}

// Calls `function` with `memory` as a pointer to elements of the dtype.
template <typename Function>
__device__ void with_dtype(core::DataType dtype, void* memory, Function function) {
  switch (dtype) {
    case core::kFloat16:
      function(static_cast<__half*>(memory));
      break;
    case core::kBFloat16:
      function(static_cast<__nv_bfloat16*>(memory));
      break;
    case core::kFloat32:
      function(static_cast<float*>(memory));
      break;
    default:
      function(static_cast<double*>(memory));
      break;
  }
}

}  // namespace ampscaler::cuda
