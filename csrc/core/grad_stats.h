// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What one pass over a list of gradients finds out, and what follows from it: flag, norm, clip
// coefficient, factors. Kernels fill GradSums, and finish() concludes for one list; merge_stats.h does for
// several, step_scalars.h for a fused step, and ops/conclusions_by_torch.cpp repeats all three with tensors.

#include <cfloat>
#include <cmath>
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
  kUnderflows,       // 0 < |x| < kSmallestNormalFloat16 (core/ranges.h)
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

AMPSCALER_HOST_DEVICE inline double stored_max_abs(const GradSums& sums) {
  return __builtin_bit_cast(double, sums.max_abs_bits);  // nvcc refuses std::bit_cast here
}

/// The norm of the finite stored values. Normalises the limbs. `norm_type` is 2, inf, or another p >= 0
/// whose powers were added to the limbs (for 0: a 1 for each tensor with a nonzero element).
AMPSCALER_HOST_DEVICE inline ScaledDouble stored_norm(GradSums& sums, double norm_type) {
  normalise(sums.limbs);
  if (norm_type > DBL_MAX) {
    return {stored_max_abs(sums), 0};
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
  // Macros, since device code may not call std::numeric_limits.
  return sums.nans > 0 ? static_cast<double>(NAN) : sums.infs > 0 ? HUGE_VAL : finite;
}

/// The three factors among the results, in each of which a coefficient can take effect.
struct StepFactors {
  double clip_coefficient;
  float unscale_and_clip;
  float effective_grad_scale;
};

AMPSCALER_HOST_DEVICE inline StepFactors factors_for(const GradScaling& scaling,
                                                     double coefficient) {
  const double inverse = inverse_scale(scaling);  // of float, as in the pass that only unscales
  return {coefficient, static_cast<float>(inverse * coefficient),
          effective_grad_scale(scaling, coefficient)};
}

/// Whether a step may apply the factors to elements up to `max_abs`: none of them spoils gradients, or
/// makes a float infinite, as a scale below 1 can. What only a float64 can hold is not judged.
AMPSCALER_HOST_DEVICE inline bool is_usable(const StepFactors& factors, double max_abs) {
  if (!is_usable(static_cast<float>(factors.clip_coefficient)) ||
      !is_usable(factors.unscale_and_clip) || !is_usable(factors.effective_grad_scale)) {
    return false;
  }
  const auto largest = static_cast<float>(max_abs);
  return !is_finite(largest) || (is_finite(largest * factors.unscale_and_clip) &&
                                 is_finite(largest / factors.effective_grad_scale));
}

/// Factors that are defined although no step is to use them: they do not clip.
AMPSCALER_HOST_DEVICE inline StepFactors idle_factors(const GradScaling& scaling) {
  const StepFactors unclipped = factors_for(scaling, 1.0);
  return {1.0, is_usable(unclipped.unscale_and_clip) ? unclipped.unscale_and_clip : 1.0F,
          is_usable(unclipped.effective_grad_scale) ? unclipped.effective_grad_scale : 1.0F};
}

/// Fills `stats` and `factors`. No elements: norm 0, flag 0, whatever the scaling is.
///
/// The flag is set where the update must not happen: by an inf, NaN or overflow, by a scaling that is not
/// usable, by a limit on a norm so large that coefficient or factors leave the range of float, and by
/// true gradients that leave it. With the flag the coefficient is 1, selected and not computed, and the
/// factors are finite and not 0.
AMPSCALER_HOST_DEVICE inline void finish(GradSums& sums, double norm_type,
                                         const GradScaling& scaling, const ClipRule& rule,
                                         double* stats, float* factors) {
  const bool empty = sums.elements == 0;
  const ScaledDouble stored = stored_norm(sums, norm_type);
  const double norm_scaling = norm_type == 0.0 ? 1.0 : norm_factor(scaling);
  const double finite_norm = to_double({stored.mantissa * norm_scaling, stored.exponent});
  const double norm = empty ? 0.0 : unless_nonfinite(sums, finite_norm);
  const double max_abs = stored_max_abs(sums);

  StepFactors step = factors_for(scaling, clip_coefficient(norm, rule));
  const bool nonfinite = sums.infs > 0 || sums.nans > 0 || sums.overflows > 0;
  const bool usable = is_usable(scaling) && is_usable(step, max_abs);
  if (nonfinite || !usable) {
    step = idle_factors(scaling);
  }
  const bool found_inf = !empty && (nonfinite || !usable);

  stats[kNorm] = norm;
  stats[kMaxAbs] = empty ? 0.0 : unless_nonfinite(sums, max_abs * norm_factor(scaling));
  stats[kZeros] = static_cast<double>(sums.zeros);
  stats[kUnderflows] = static_cast<double>(sums.underflows);
  stats[kElements] = static_cast<double>(sums.elements);
  stats[kInfs] = static_cast<double>(sums.infs);
  stats[kNans] = static_cast<double>(sums.nans);
  stats[kOverflows] = static_cast<double>(sums.overflows);
  stats[kClipCoefficient] = step.clip_coefficient;
  factors[kFoundInf] = found_inf ? 1.0F : 0.0F;
  factors[kRoundedNorm] = static_cast<float>(norm);
  factors[kRoundedClip] = static_cast<float>(step.clip_coefficient);
  factors[kUnscaleAndClip] = step.unscale_and_clip;
  factors[kEffectiveGradScale] = step.effective_grad_scale;
}

}  // namespace ampscaler::core
