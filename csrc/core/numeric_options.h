// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What makes the numbers acceptable that a scaler is built from. Strict: this is for our own
// classes; the Python drop-in accepts whatever torch accepts. Each function returns what is wrong,
// or an empty string.

#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>

namespace ampscaler::core {

template <typename T>
std::string expected_got(const char* argument, const char* expected, T got) {
  std::ostringstream text;
  text << "AmpScaler: " << argument << ": expected " << expected << ", got " << got;
  return text.str();
}

// Whether a double can become a float32: its infinities and NaN can, larger finite values cannot.
inline bool fits_float32(double value) {
  return !std::isfinite(value) || std::abs(value) <= std::numeric_limits<float>::max();
}

// A scale is stored as float: it must be a positive finite float after rounding.
inline std::string check_scale(const char* argument, double value) {
  const bool usable =
      value > 0.0 && value <= std::numeric_limits<float>::max() && static_cast<float>(value) > 0.0F;
  return usable ? std::string() : expected_got(argument, "a positive finite float32 value", value);
}

// torch's own texts, raised as AssertionError. NaN and infinity, which torch lets pass, are refused
// with ours.
inline constexpr const char* kGrowthFactorTooSmall = "The growth factor must be > 1.0.";
inline constexpr const char* kBackoffFactorTooLarge = "The backoff factor must be < 1.0.";

inline std::string check_growth_factor(double value) {
  if (value <= 1.0) {
    return kGrowthFactorTooSmall;
  }
  return std::isfinite(value) ? std::string()
                              : expected_got("growth_factor", "a finite value > 1", value);
}

inline std::string check_backoff_factor(double value) {
  if (value >= 1.0) {
    return kBackoffFactorTooLarge;
  }
  return value > 0.0 ? std::string() : expected_got("backoff_factor", "a value in (0, 1)", value);
}

inline std::string check_growth_interval(std::int64_t value) {
  return value >= 1 ? std::string() : expected_got("growth_interval", "an integer >= 1", value);
}

inline std::string check_growth_tracker(std::int64_t value) {
  const bool usable = value >= 0 && value <= std::numeric_limits<std::int32_t>::max();
  return usable ? std::string() : expected_got("_growth_tracker", "an integer in [0, 2^31)", value);
}

}  // namespace ampscaler::core
