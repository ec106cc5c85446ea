// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Multiplies the elements of a unit where they are, without sums. No lane must have particular elements
// then, so a misaligned unit has a head of less than 16 bytes, and after it whole vectors are aligned:
//
//   | head |  vector 0  |  vector 1  | ... | tail |
//          ^ multiple of 16

#include "kernels/cuda/elements.cuh"

namespace ampscaler::cuda {

// `visit(before)` is called with every value.
template <typename T, int kVectors, typename Value, typename Visit>
__device__ void multiply_group(uint4* memory, Value factor, Visit visit) {
  Words group[kVectors];
  load_group(group, memory);
  AMPSCALER_UNROLL
  for (int vector = 0; vector < kVectors; ++vector) {
    AMPSCALER_UNROLL
    for (int i = 0; i < kPerVector<T>; ++i) {
      const Value value = decode(group[vector], i, T{});
      visit(value);
      encode(group[vector], i, value * factor, T{});
    }
  }
  store_group(group, memory);
}

template <typename T, typename Value, typename Visit>
__device__ void multiply_element(T& element, Value factor, Visit visit) {
  const Value value = load(element);
  visit(value);
  store(element, value * factor);
}

// All lanes of a warp together. The factor is rounded to the type in which products are formed.
template <typename T, typename Visit>
__device__ void multiply_unit(T* values, int elements, float factor_as_float, Visit visit) {
  constexpr int kGroup = 4;
  const auto factor = static_cast<Compute<T>::Type>(factor_as_float);
  const auto misalignment =
      static_cast<int>(reinterpret_cast<std::uint64_t>(values) % kVectorBytes);
  const int to_boundary =
      (kVectorBytes - misalignment) % kVectorBytes / static_cast<int>(sizeof(T));
  const int head = to_boundary < elements ? to_boundary : elements;
  const int vectors = (elements - head) / kPerVector<T>;
  auto* memory = reinterpret_cast<uint4*>(values + head);
  if (lane_id() < head) {
    multiply_element(values[lane_id()], factor, visit);
  }
  int vector = lane_id();
  for (; vector + (kGroup - 1) * kWarpSize < vectors; vector += kGroup * kWarpSize) {
    multiply_group<T, kGroup>(memory + vector, factor, visit);
  }
  for (; vector < vectors; vector += kWarpSize) {
    multiply_group<T, 1>(memory + vector, factor, visit);
  }
  const int last = head + vectors * kPerVector<T> + lane_id();
  if (last < elements) {
    multiply_element(values[last], factor, visit);
  }
}

}  // namespace ampscaler::cuda
