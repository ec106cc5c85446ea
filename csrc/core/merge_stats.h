// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The results of several lists as those of one list: gradients on several devices, or shards of one model
// in several processes, each know their own norm only.

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "core/clip.h"
#include "core/grad_stats.h"
#include "core/macros.h"

namespace ampscaler::core {

/// `value`, or `larger` if that is larger or NaN. NaN stays.
AMPSCALER_HOST_DEVICE inline double larger_or_nan(double value, double larger) {
  return value >= larger || value != value ? value : larger;
}

/// The norm of the parts' norms, slot kNorm of each row of `stats`; divided by the largest one meanwhile,
/// so that no power leaves the range of double. One part keeps its bits.
AMPSCALER_HOST_DEVICE inline double merged_norm(const double* stats, std::int64_t parts,
                                                double norm_type) {
  double largest = 0.0;
  double total = 0.0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const double norm = stats[i * kStatsSlots + kNorm];
    largest = larger_or_nan(largest, norm);
    total += norm;
  }
  if (norm_type == 0.0) {
    return total;  // of counts
  }
  if (norm_type > DBL_MAX || largest == 0.0 || !is_finite(largest)) {
    return largest;
  }
  double sum = 0.0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const double ratio = stats[i * kStatsSlots + kNorm] / largest;
    sum += norm_type == 2.0 ? ratio * ratio : std::pow(ratio, norm_type);
  }
  return largest * (norm_type == 2.0 ? std::sqrt(sum) : std::pow(sum, 1.0 / norm_type));
}

/// `stats` has `parts` rows of kStatsSlots, at least one. Fills `merged` and, of `factors`, flag, norm and
/// coefficient; the others depend on the parts' scales and are 1. The flag follows from the merged results:
/// a scale that was not usable shows only where it has made a norm infinite or NaN.
AMPSCALER_HOST_DEVICE inline void merge_stats(const double* stats, std::int64_t parts,
                                              double norm_type, const ClipRule& rule,
                                              double* merged, float* factors) {
  for (int slot = 0; slot < kStatsSlots; ++slot) {
    merged[slot] = 0.0;
    for (std::int64_t i = 0; i < parts; ++i) {
      merged[slot] += stats[i * kStatsSlots + slot];  // counts
    }
  }
  merged[kNorm] = merged_norm(stats, parts, norm_type);
  merged[kMaxAbs] = 0.0;
  for (std::int64_t i = 0; i < parts; ++i) {
    merged[kMaxAbs] = larger_or_nan(merged[kMaxAbs], stats[i * kStatsSlots + kMaxAbs]);
  }
  const double coefficient = clip_coefficient(merged[kNorm], rule);
  const bool nonfinite = merged[kInfs] > 0.0 || merged[kNans] > 0.0 || merged[kOverflows] > 0.0;
  const bool usable = is_finite(merged[kNorm]) && is_usable(static_cast<float>(coefficient));
  const bool found_inf = nonfinite || !usable;
  merged[kClipCoefficient] = found_inf ? 1.0 : coefficient;
  factors[kFoundInf] = found_inf ? 1.0F : 0.0F;
  factors[kRoundedNorm] = static_cast<float>(merged[kNorm]);
  factors[kRoundedClip] = static_cast<float>(merged[kClipCoefficient]);
  factors[kUnscaleAndClip] = 1.0F;
  factors[kEffectiveGradScale] = 1.0F;
}

}  // namespace ampscaler::core
