// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// How a scaled gradient relates to the true one, and by how much clipping shrinks it.
//
//   true gradient = stored gradient / (scale * divisor * user_scale)
//
// `divisor` is the total weight of accumulated micro-batches, `user_scale` what the user has set as
// `optimizer.grad_scale`.

#include <limits>

#include "core/finite.h"
#include "core/macros.h"

namespace ampscaler::core {

struct GradScaling {
  double scale = 1.0;
  double divisor = 1.0;
  double user_scale = 1.0;
};

struct ClipRule {
  double max_norm = std::numeric_limits<double>::infinity();
  double eps = 0.0;
};

AMPSCALER_HOST_DEVICE inline double magnitude(double value) { return value < 0.0 ? -value : value; }

/// Below it a float has fewer than 12 bits left, and 2^-149 stands for anything up to half as large again.
inline constexpr double kSmallestFactor = 0x1p-137;

/// Whether multiplying or dividing by `factor` keeps gradients what they are: not 0, inf or NaN, nor so
/// small that rounding it to float has changed it.
AMPSCALER_HOST_DEVICE inline bool is_usable(float factor) {
  return is_finite(factor) && magnitude(factor) >= kSmallestFactor;
}

AMPSCALER_HOST_DEVICE inline bool is_valid_divisor(double divisor) {
  return is_finite(divisor) && divisor > 0.0;
}

/// Scale and divisor; a divisor that is not valid counts as 1.
AMPSCALER_HOST_DEVICE inline double total_scale(const GradScaling& scaling) {
  return scaling.scale * (is_valid_divisor(scaling.divisor) ? scaling.divisor : 1.0);
}

/// What gradients are multiplied by in place: float(1 / double(scale)), torch's inverse, where there is
/// no divisor.
AMPSCALER_HOST_DEVICE inline float inverse_scale(const GradScaling& scaling) {
  return static_cast<float>(1.0 / total_scale(scaling));
}

/// What a stored norm is multiplied by: not rounded to float, and of the magnitudes, since a negative
/// factor must not make a norm negative.
AMPSCALER_HOST_DEVICE inline double norm_factor(const GradScaling& scaling) {
  return 1.0 / (magnitude(total_scale(scaling)) * magnitude(scaling.user_scale));
}

/// Whether true gradients can be had at all: otherwise the step must be skipped.
AMPSCALER_HOST_DEVICE inline bool is_usable(const GradScaling& scaling) {
  const double factor = norm_factor(scaling);
  return is_valid_divisor(scaling.divisor) && is_usable(inverse_scale(scaling)) &&
         is_usable(static_cast<float>(scaling.user_scale)) && is_finite(factor) && factor > 0.0;
}

/// 1 exactly when the norm is within the limit; else the factor that brings it there. `max_norm` that is
/// not above 0, or NaN, counts as no limit: hosts refuse it where they can see it.
AMPSCALER_HOST_DEVICE inline double clip_coefficient(double norm, const ClipRule& rule) {
  const bool limited = rule.max_norm > 0.0 && norm > rule.max_norm;
  return limited ? rule.max_norm / (norm + rule.eps) : 1.0;
}

/// What a fused optimizer must divide stored gradients by to apply true, clipped ones. Formed in double
/// and rounded once; not usable (see above) where the quotient leaves the range of float.
AMPSCALER_HOST_DEVICE inline float effective_grad_scale(const GradScaling& scaling,
                                                        double coefficient) {
  return static_cast<float>(scaling.user_scale * total_scale(scaling) / coefficient);
}

}  // namespace ampscaler::core
