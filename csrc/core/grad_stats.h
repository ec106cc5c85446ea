// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What one pass over a list of gradients finds out, and what follows from it: flag, norm, clip
// coefficient, factors. Kernels fill GradSums; finish() is the only place that draws conclusions.

#include <cstdint>

#include "core/clip.h"
#include "core/exact_sum.h"
#include "core/macros.h"

namespace ampscaler::core {

/// Slots of the float64 vector `stats`. Norm and max_abs are of the true gradients (core/clip.h), the
/// counts are of the stored values.
enum StatsSlot : std::uint8_t {
  kNorm,             // NaN if an element is, else inf if one is
  kMaxAbs,           // likewise
  kZeros,            // elements +0 and -0
  kUnderflows,       // 0 < |x| < 2^-14, float16's smallest normal number
  kElements,         // all
  kInfs,             // elements that are +inf or -inf
  kNans,             // elements that are NaN
  kOverflows,        // finite elements that unscaling in place made non-finite
  kClipCoefficient,  // 1 where nothing is clipped
  kStatsSlots,
};
inline constexpr const char* kStatsNames[kStatsSlots] = {
    "norm", "max_abs", "zeros",     "underflows",      "elements",
    "infs", "nans",    "overflows", "clip_coefficient"};

/// Slots of the float32 vector `factors`, for kernels that take float32 scalars.
enum FactorSlot : std::uint8_t {
  kFoundInf,            // exactly 0 or 1
  kRoundedNorm,         // stats[kNorm]
  kRoundedClip,         // stats[kClipCoefficient]: for unscaled gradients
  kUnscaleAndClip,      // for scaled gradients: 1 / (scale * divisor), times the coefficient
  kEffectiveGradScale,  // what a fused optimizer divides scaled gradients by
  kFactorSlots,
};
inline constexpr const char* kFactorNames[kFactorSlots] = {"found_inf", "norm", "clip_coefficient",
                                                           "unscale_and_clip", "grad_scale"};

/// Sums over a list, in 141 words that an int64 tensor can hold. Two of them merge by adding the words,
/// but the last by its maximum.
struct GradSums {
  std::uint64_t limbs[kLimbs];  // exact_sum.h; of squares, or of powers for another norm
  std::int64_t zeros;
  std::int64_t underflows;
  std::int64_t elements;
  std::int64_t infs;
  std::int64_t nans;
  std::int64_t overflows;
  std::int64_t max_abs_bits;  // of the largest finite |x| as a double; they order like the numbers
};
inline constexpr int kGradSumsWords = sizeof(GradSums) / sizeof(std::int64_t);

AMPSCALER_HOST_DEVICE inline void merge(GradSums& sums, const GradSums& more) {
  for (int k = 0; k < kLimbs; ++k) {
    sums.limbs[k] += more.limbs[k];
  }
  sums.zeros += more.zeros;
  sums.underflows += more.underflows;
  sums.elements += more.elements;
  sums.infs += more.infs;
  sums.nans += more.nans;
  sums.overflows += more.overflows;
  sums.max_abs_bits = sums.max_abs_bits < more.max_abs_bits ? more.max_abs_bits : sums.max_abs_bits;
}

/// The norm of the finite stored values. Normalises the limbs. `norm_type` is 2, inf, or another p >= 0
/// whose powers were added to the limbs (for 0: a 1 for each tensor with a nonzero element).
AMPSCALER_HOST_DEVICE inline ScaledDouble stored_norm(GradSums& sums, double norm_type) {
  normalise(sums.limbs);
  if (norm_type > DBL_MAX) {
    return {std::bit_cast<double>(sums.max_abs_bits), 0};
  }
  const ScaledDouble sum = read_sum(sums.limbs);
  if (norm_type == 2.0) {
    return square_root(sum);
  }
  const double value = to_double(sum);
  return {norm_type == 0.0 ? value : std::pow(value, 1.0 / norm_type), 0};
}

/// `finite` unless an element was not.
AMPSCALER_HOST_DEVICE inline double unless_nonfinite(const GradSums& sums, double finite) {
  const double infinity = std::numeric_limits<double>::infinity();
  return sums.nans > 0 ? infinity - infinity : sums.infs > 0 ? infinity : finite;
}

/// Fills `stats` and `factors`. No elements: norm 0, flag 0, whatever the scaling is.
///
/// The flag is set where the update must not happen: by an inf, NaN or overflow, by a scaling that is not
/// usable, and by a limit on a norm so large that coefficient or factors leave the range of float. With
/// the flag the coefficient is 1, selected and not computed.
AMPSCALER_HOST_DEVICE inline void finish(GradSums& sums, double norm_type,
                                         const GradScaling& scaling, const ClipRule& rule,
                                         double* stats, float* factors) {
  const double norm_scaling = norm_type == 0.0 ? 1.0 : norm_factor(scaling);
  const ScaledDouble stored = stored_norm(sums, norm_type);
  const bool empty = sums.elements == 0;
  const double norm =
      empty ? 0.0
            : unless_nonfinite(sums, to_double({stored.mantissa * norm_scaling, stored.exponent}));
  const double max_abs = std::bit_cast<double>(sums.max_abs_bits);

  double coefficient = clip_coefficient(norm, rule);
  const float inverse = inverse_scale(scaling);
  float unscale_and_clip = static_cast<float>(static_cast<double>(inverse) * coefficient);
  float grad_scale = effective_grad_scale(scaling, coefficient);
  const bool usable = is_usable(scaling) && is_usable(static_cast<float>(coefficient)) &&
                      is_usable(unscale_and_clip) && is_usable(grad_scale);
  const bool nonfinite = sums.infs > 0 || sums.nans > 0 || sums.overflows > 0;
  const bool found_inf = !empty && (nonfinite || !usable);
  if (found_inf) {
    coefficient = 1.0;
    unscale_and_clip = is_usable(inverse) ? inverse : 1.0F;
    grad_scale = effective_grad_scale(scaling, coefficient);
    grad_scale = is_usable(grad_scale) ? grad_scale : 1.0F;
  }
  stats[kNorm] = norm;
  stats[kMaxAbs] = empty ? 0.0 : unless_nonfinite(sums, max_abs * norm_factor(scaling));
  stats[kZeros] = static_cast<double>(sums.zeros);
  stats[kUnderflows] = static_cast<double>(sums.underflows);
  stats[kElements] = static_cast<double>(sums.elements);
  stats[kInfs] = static_cast<double>(sums.infs);
  stats[kNans] = static_cast<double>(sums.nans);
  stats[kOverflows] = static_cast<double>(sums.overflows);
  stats[kClipCoefficient] = coefficient;
  factors[kFoundInf] = found_inf ? 1.0F : 0.0F;
  factors[kRoundedNorm] = static_cast<float>(norm);
  factors[kRoundedClip] = static_cast<float>(coefficient);
  factors[kUnscaleAndClip] = unscale_and_clip;
  factors[kEffectiveGradScale] = grad_scale;
}

}  // namespace ampscaler::core
