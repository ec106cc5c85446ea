// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What one warp finds in one unit, and what it stores there. Bounds are in core/ranges.h. The position of an
// element in its unit alone decides which lane sums it and in which order: the same bits at any address.
//
//   group of 4 vectors       lane 0: vectors 0, 32, 64, 96      lane 1: 1, 33, 65, 97     ...
//   first elements that fill no vector, one per lane, then groups, then vectors that fill none, one by one

#include <cfloat>
#include <cmath>

#include "core/ranges.h"
#include "core/units.h"
#include "kernels/cuda/elements.cuh"

namespace ampscaler::cuda {

/// Sums of a unit as it was before anything was stored. Inf and NaN count in `infs` and `nans` and in
/// nothing else.
struct UnitSums {
  double sum;           // of squares: for float64, of |x| in [kLowestSquared, kHighestSquared)
  double sum_high;      // float64 only: of (x * kHighFactor)^2 for larger ones
  double sum_low;       // float64 only: of (x * kLowFactor)^2 for smaller ones
  double max_abs;       // of the finite values; 0 if there is none
  std::uint32_t zeros;  // +0 and -0
  std::uint32_t below;  // |x| < kSmallestNormalFloat16, zeros included
  std::uint32_t infs;
  std::uint32_t nans;
  std::uint32_t overflows;  // finite values whose result, as stored, is not
};

// ---- what a pass does to values ----

__device__ inline float magnitude_of(float value) { return fabsf(value); }
__device__ inline double magnitude_of(double value) { return fabs(value); }

struct ReadOnly {
  static constexpr bool kStores = false;
};

// Whether a product can be inf or NaN where the value is not.
__device__ inline bool can_overflow(float factor) { return !(factor >= -1.0F && factor <= 1.0F); }

// The members of both are the same in all threads of a launch.
struct Unscale {
  static constexpr bool kStores = true;
  static constexpr bool kReadsAgain = false;  // before it stores, for want of registers
  float factor;

  __device__ bool stores() const { return factor != 1.0F; }
  template <typename Value>
  __device__ Value operator()(Value x) const {
    return x * static_cast<Value>(factor);
  }
};

struct UnscaleClamp {
  static constexpr bool kStores = true;
  static constexpr bool kReadsAgain = true;
  float factor;
  double limit;

  __device__ bool stores() const { return true; }

  // NaN stays NaN: it fails the comparison.
  template <typename Value>
  __device__ Value operator()(Value x) const {
    const Value product = x * static_cast<Value>(factor);
    const auto most = static_cast<Value>(limit);
    if (magnitude_of(product) > most) {
      return product > 0 ? most : -most;
    }
    return product;
  }
};

// ---- one lane ----

// Inf, NaN and overflows are rare: three counts, of at most 256 each, in one register.
inline constexpr std::uint32_t kOneInf = 1;
inline constexpr std::uint32_t kOneNan = 1U << 10U;
inline constexpr std::uint32_t kOneOverflow = 1U << 20U;

template <typename Value>
struct LaneSums {
  double sum;
  Value max;
  std::uint32_t zeros;
  std::uint32_t below;
  std::uint32_t rare;
};

template <>
struct LaneSums<double> {
  double sum;
  double high;
  double low;
  double max;
  std::uint32_t zeros;
  std::uint32_t below;
  std::uint32_t rare;
};

template <typename Value>
__device__ std::uint32_t rare_kind(Value x) {
  return x != x ? kOneNan : kOneInf;
}

// Magnitudes order like their bits. Of a double the high half tells the most: comparisons of doubles are
// slow on many GPUs, and their constants take registers.
__device__ constexpr std::uint64_t bits_of(double magnitude) {
  return __builtin_bit_cast(std::uint64_t, magnitude);  // nvcc refuses std::bit_cast here
}
__device__ constexpr std::uint32_t high_bits(double magnitude) {
  return static_cast<std::uint32_t>(bits_of(magnitude) >> 32U);
}

__device__ inline double larger(double a, double b) { return bits_of(a) < bits_of(b) ? b : a; }
__device__ inline float larger(float a, float b) { return fmaxf(a, b); }  // drops NaN

__device__ inline void count(LaneSums<float>& lane, float magnitude) {
  lane.zeros += magnitude == 0.0F ? 1U : 0U;
  lane.below += magnitude < static_cast<float>(core::kSmallestNormalFloat16) ? 1U : 0U;
}

__device__ inline void count(LaneSums<double>& lane, double magnitude) {
  lane.zeros += bits_of(magnitude) == 0 ? 1U : 0U;
  lane.below += high_bits(magnitude) < high_bits(core::kSmallestNormalFloat16) ? 1U : 0U;
}

// Any magnitude: the square of a float is exact in double and in its range.
__device__ inline void add_carefully(LaneSums<float>& lane, float magnitude) {
  if (magnitude <= FLT_MAX) {
    const auto wide = static_cast<double>(magnitude);
    lane.sum = fma(wide, wide, lane.sum);
    lane.max = larger(lane.max, magnitude);
  } else {
    lane.rare += rare_kind(magnitude);
  }
}

// Squares beyond the range of double are squares of values that are scaled first.
__device__ inline void add_carefully(LaneSums<double>& lane, double magnitude) {
  const std::uint32_t high = high_bits(magnitude);
  if (high >= high_bits(HUGE_VAL)) {
    lane.rare += rare_kind(magnitude);
    return;
  }
  lane.max = larger(lane.max, magnitude);
  if (high >= high_bits(core::kHighestSquared)) {
    const double scaled = magnitude * core::kHighFactor;
    lane.high = fma(scaled, scaled, lane.high);
  } else if (high >= high_bits(core::kLowestSquared)) {
    lane.sum = fma(magnitude, magnitude, lane.sum);
  } else {
    const double scaled = magnitude * core::kLowFactor;
    lane.low = fma(scaled, scaled, lane.low);
  }
}

// Every element of a group by itself, from memory once more, so that the loop above has the registers.
template <typename T, int kVectors>
__device__ void add_group_carefully(LaneSums<float>& lane, const T* values) {
  AMPSCALER_NO_UNROLL
  for (int i = 0; i < kVectors * kPerVector<T>; ++i) {
    const int vector = i / kPerVector<T>;
    const int place = vector * kWarpSize * kPerVector<T> + i % kPerVector<T>;
    add_carefully(lane, magnitude_of(load(values[place])));
  }
}

// The squares of a group are summed in float first. That sum is not sound if it is inf or NaN, or so
// small that squares may have been lost. Groups of zeros are common, and cheap. `values` is where the group
// came from.
template <typename T, int kVectors>
__device__ void add_group(LaneSums<float>& lane, const Words (&group)[kVectors], const T* values) {
  float partial = 0.0F;
  float max = 0.0F;
  AMPSCALER_UNROLL
  for (int vector = 0; vector < kVectors; ++vector) {
    float squares = 0.0F;
    AMPSCALER_UNROLL
    for (int i = 0; i < kPerVector<T>; ++i) {
      const float magnitude = magnitude_of(decode(group[vector], i, T{}));
      squares = fmaf(magnitude, magnitude, squares);
      max = larger(max, magnitude);  // without NaN, which `partial` has
      count(lane, magnitude);
    }
    partial = __fadd_rn(partial, squares);
  }
  if (partial >= core::kLowestFloatSum && partial <= FLT_MAX) {
    lane.sum += static_cast<double>(partial);
    lane.max = larger(lane.max, max);
  } else if (!(partial == 0.0F && max == 0.0F)) {
    add_group_carefully<T, kVectors>(lane, values);
  }
}

template <typename T, int kVectors>
__device__ void add_group(LaneSums<double>& lane, const Words (&group)[kVectors],
                          const T* /*values*/) {
  AMPSCALER_UNROLL
  for (int vector = 0; vector < kVectors; ++vector) {
    AMPSCALER_UNROLL
    for (int i = 0; i < kPerVector<T>; ++i) {
      const double magnitude = magnitude_of(decode(group[vector], i, T{}));
      count(lane, magnitude);
      add_carefully(lane, magnitude);
    }
  }
}

__device__ inline bool is_finite_value(float value) {
  return core::is_finite_bits(__float_as_uint(value), core::kFloat32Exponent);
}
__device__ inline bool is_finite_value(double value) {
  return core::is_finite_bits(bits_of(value), core::kFloat64Exponent);
}

template <typename Value>
__device__ bool is_new_overflow(Value before, Value after) {
  return is_finite_value(before) && !is_finite_value(after);
}

// Replaces the values by results, one vector after the other.
template <typename T, int kVectors, typename Action, typename Lane>
__device__ void apply(const Action& action, Words (&group)[kVectors], Lane& lane) {
  AMPSCALER_UNROLL
  for (int vector = 0; vector < kVectors; ++vector) {
    AMPSCALER_UNROLL
    for (int i = 0; i < kPerVector<T>; ++i) {
      const auto value = decode(group[vector], i, T{});
      encode(group[vector], i, action(value), T{});
      if (can_overflow(action.factor) && is_new_overflow(value, decode(group[vector], i, T{}))) {
        lane.rare += kOneOverflow;
      }
    }
  }
}

// Stores the results of a group, which is also in registers.
template <typename T, int kVectors, typename Access, typename Action, typename Lane>
__device__ void apply_to_group(Access* memory, const Action& action, Words (&group)[kVectors],
                               Lane& lane) {
  if constexpr (!Action::kReadsAgain) {
    apply<T>(action, group, lane);
    store_group(group, memory);
  } else {
    AMPSCALER_NO_UNROLL
    for (int vector = 0; vector < kVectors; ++vector) {
      Words one[1];
      load_group(one, vector_at(memory, vector * kWarpSize));
      apply<T>(action, one, lane);
      store_group(one, vector_at(memory, vector * kWarpSize));
    }
  }
}

// `memory` is where the group is, as accesses of the width that its address allows.
template <typename T, int kVectors, typename Access, typename Action, typename Lane>
__device__ void visit_group(Access* memory, const Action& action, Lane& lane) {
  Words group[kVectors];
  load_group(group, memory);
  add_group(lane, group, reinterpret_cast<const T*>(memory));
  if constexpr (Action::kStores) {
    if (action.stores()) {
      apply_to_group<T>(memory, action, group, lane);
    }
  }
}

// `memory` is the lane's first vector; every 32nd from there on is its own, of `vectors` that are left.
template <typename T, typename Access, typename Action, typename Lane>
__device__ void visit_vectors(Access* memory, int vectors, const Action& action, Lane& lane) {
  // Doubles are added one by one anyway, and take twice the registers.
  constexpr int kGroup = sizeof(T) == 8 && Action::kStores ? 1 : 4;
  for (; vectors > (kGroup - 1) * kWarpSize; vectors -= kGroup * kWarpSize) {
    visit_group<T, kGroup>(memory, action, lane);
    memory = vector_at(memory, kGroup * kWarpSize);
  }
  for (; vectors > 0; vectors -= kWarpSize) {
    visit_group<T, 1>(memory, action, lane);
    memory = vector_at(memory, kWarpSize);
  }
}

template <typename T, typename Action, typename Lane>
__device__ void visit_element(T& element, const Action& action, Lane& lane) {
  const auto value = load(element);
  if constexpr (Action::kStores) {
    if (action.stores()) {
      store(element, action(value));
      if (can_overflow(action.factor) && is_new_overflow(value, load(element))) {
        lane.rare += kOneOverflow;
      }
    }
  }
  const auto magnitude = magnitude_of(value);
  count(lane, magnitude);
  add_carefully(lane, magnitude);
}

// ---- one warp ----

template <typename Number>
__device__ Number warp_sum(Number value) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value += __shfl_down_sync(kAllLanes, value, distance);
  }
  return value;
}

template <typename Value>
__device__ Value warp_max(Value value) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value = larger(value, __shfl_down_sync(kAllLanes, value, distance));
  }
  return value;
}

__device__ inline void sum_extremes(const LaneSums<float>& /*lane*/, UnitSums& /*unit*/) {}

__device__ inline void sum_extremes(const LaneSums<double>& lane, UnitSums& unit) {
  if (__any_sync(kAllLanes, lane.high != 0.0 || lane.low != 0.0)) {
    unit.sum_high = warp_sum(lane.high);
    unit.sum_low = warp_sum(lane.low);
  }
}

// The sums of all lanes, in lane 0; the others get parts of them. A unit has at most 8,192 elements, so two
// of its counts fit a word.
template <typename Value>
__device__ UnitSums sum_lanes(const LaneSums<Value>& lane) {
  UnitSums unit = {};
  unit.sum = warp_sum(lane.sum);
  sum_extremes(lane, unit);
  unit.max_abs = static_cast<double>(warp_max(lane.max));
  const std::uint32_t counts = warp_sum(lane.zeros | lane.below << 16U);
  unit.zeros = counts & 0xFFFFU;
  unit.below = counts >> 16U;
  if (__any_sync(kAllLanes, lane.rare != 0)) {
    unit.infs = warp_sum(lane.rare & 0x3FFU);
    unit.nans = warp_sum(lane.rare >> 10U & 0x3FFU);
    unit.overflows = warp_sum(lane.rare >> 20U);
  }
  return unit;
}

// All lanes of a warp together. The result is in lane 0.
template <typename T, typename Action>
__device__ UnitSums sum_unit(T* values, int elements, const Action& action) {
  const int vectors = elements / kPerVector<T>;
  LaneSums<typename Compute<T>::Type> lane = {};
  const int last = vectors * kPerVector<T> + lane_id();
  if (last < elements) {
    visit_element(values[last], action, lane);
  }
  with_access(values + lane_id() * kPerVector<T>,
              [&](auto* memory) { visit_vectors<T>(memory, vectors - lane_id(), action, lane); });
  return sum_lanes(lane);
}

}  // namespace ampscaler::cuda
