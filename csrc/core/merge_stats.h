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

/// Rows of kStatsSlots numbers, one after the other. What merge_stats() reads has this call operator.
struct StatsRows {
  const double* rows;

  AMPSCALER_HOST_DEVICE double operator()(std::int64_t part, int slot) const {
    return rows[part * kStatsSlots + slot];
  }
};

/// The norm of the parts' norms; divided by the largest one meanwhile, so that no power leaves the range of
/// double. One part keeps its bits.
template <typename Stats>
AMPSCALER_HOST_DEVICE inline double merged_norm(const Stats& stats, std::int64_t parts,
                                                double norm_type) {
  double largest = 0.0;
  double total = 0.0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const double norm = stats(i, kNorm);
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
    const double ratio = stats(i, kNorm) / largest;
    sum += norm_type == 2.0 ? ratio * ratio : std::pow(ratio, norm_type);
  }
  return largest * (norm_type == 2.0 ? std::sqrt(sum) : std::pow(sum, 1.0 / norm_type));
}

/// `stats(part, slot)` is a number of one of the `parts`, at least one. Fills `merged` and, of `factors`,
/// flag, norm and coefficient; the others depend on the parts' scales and are 1. The flag follows from the
/// merged results: a scale that was not usable shows only where it has made a norm infinite or NaN.
template <typename Stats>
AMPSCALER_HOST_DEVICE inline void merge_stats(const Stats& stats, std::int64_t parts,
                                              double norm_type, const ClipRule& rule,
                                              double* merged, float* factors) {
  for (int slot = 0; slot < kStatsSlots; ++slot) {
    double total = 0.0;
    for (std::int64_t i = 0; i < parts; ++i) {
      total += stats(i, slot);
    }
    merged[slot] = total;  // of counts
  }
  double max_abs = 0.0;
  for (std::int64_t i = 0; i < parts; ++i) {
    max_abs = larger_or_nan(max_abs, stats(i, kMaxAbs));
  }
  merged[kNorm] = merged_norm(stats, parts, norm_type);
  merged[kMaxAbs] = max_abs;
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
