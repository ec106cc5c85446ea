// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The numbers of a scale policy: what makes them acceptable, and the order in which the operator
// `advance_scale_` takes them as one list.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>

#include "core/numeric_options.h"
#include "core/scale_rule.h"

namespace ampscaler::core {

// A limit is a normal float, and so is its inverse. Beyond 2^126 the inverse is subnormal: a device that
// flushes those would multiply every gradient by 0. Below 2^-126 such a device would flush the scale itself.
inline constexpr double kSmallestLimit = 0x1p-126;
inline constexpr double kLargestLimit = 0x1p126;

// What is wrong with a limit, or an empty string.
inline std::string check_scale_limit(const char* argument, double value) {
  if (value >= kSmallestLimit && value <= kLargestLimit) {
    return {};
  }
  std::ostringstream text;
  text << "ScalePolicy: " << argument << ": expected a value in [2^-126, 2^126], got " << value;
  return text.str();
}

// What is wrong with the two together.
inline std::string check_scale_limits(const std::optional<double>& min_scale,
                                      const std::optional<double>& max_scale) {
  if (!min_scale || !max_scale || *min_scale <= *max_scale) {
    return {};
  }
  std::ostringstream text;
  text << "ScalePolicy: min_scale: expected at most max_scale = " << *max_scale << ", got "
       << *min_scale;
  return text.str();
}

// The slots of the operator's argument `policy`.
enum PolicySlot : std::size_t {
  kGrowthFactor,
  kBackoffFactor,
  kGrowthInterval,
  kMinScale,
  kMaxScale,
  kPolicySlots,
};

using PackedPolicy = std::array<double, kPolicySlots>;

// An interval beyond 2^53 is none that a count of steps in 32 bits reaches, so it may be rounded.
inline constexpr std::int64_t kLargestPackedInterval = 9'007'199'254'740'992;  // 2^53

inline PackedPolicy pack_policy(const ScaleRule& rule, const ScaleLimits& limits) {
  const std::int64_t interval =
      std::clamp(rule.growth_interval, -kLargestPackedInterval, kLargestPackedInterval);
  return {rule.growth_factor, rule.backoff_factor, static_cast<double>(interval), limits.min_scale,
          limits.max_scale};
}

// What is wrong with a list given to the operator, or an empty string.
inline std::string check_packed_policy(const double* values, std::size_t count) {
  std::ostringstream text;
  if (count != kPolicySlots) {
    text << "expected " << kPolicySlots
         << " values (growth_factor, backoff_factor, growth_interval, min_scale, max_scale), got "
         << count;
  } else if (const double interval = values[kGrowthInterval];
             !(std::abs(interval) <= static_cast<double>(kLargestPackedInterval)) ||
             interval != std::trunc(interval)) {
    text << "growth_interval: expected an integer in [-2^53, 2^53], got " << interval;
  } else if (!fits_float32(values[kMinScale]) || !fits_float32(values[kMaxScale])) {
    text << "min_scale, max_scale: expected float32 values, got " << values[kMinScale] << " and "
         << values[kMaxScale];
  } else if (!(values[kMinScale] <= values[kMaxScale])) {
    text << "min_scale: expected at most max_scale = " << values[kMaxScale] << ", got "
         << values[kMinScale];
  }
  return text.str();
}

// The two halves of a list that check_packed_policy() accepted.
inline ScaleRule unpack_rule(const double* values) {
  return {values[kGrowthFactor], values[kBackoffFactor],
          static_cast<std::int64_t>(values[kGrowthInterval])};
}

inline ScaleLimits unpack_limits(const double* values) {
  return {static_cast<float>(values[kMinScale]), static_cast<float>(values[kMaxScale])};
}

}  // namespace ampscaler::core
