// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The loops over gradient elements, as a table of functions per instruction set. A function handles one
// unit (core/units.h) or less of one tensor; what is above it (lists, threads, sums over units) is
// compiled once, for any machine.
//
// Torch-free, and without inline functions or templates: the units compiled for AVX include it.

#include <cstdint>

#include "core/data_type.h"

namespace ampscaler::cpu {

/// The dtypes that have loops; the index into every table.
using core::DataType;
using core::kBFloat16;
using core::kDataTypes;
using core::kFloat16;
using core::kFloat32;
using core::kFloat64;

/// What a loop has seen of the values as they were stored before it. "Finite" is by value: an inf or NaN
/// element counts in `infs` or `nans` and in nothing else. core/ranges.h has the bounds.
struct UnitStats {
  double sum;               // of squares: for float64, of |x| in [kLowestSquared, kHighestSquared]
  double sum_high;          // float64 only: of (x * kHighFactor)^2 for larger ones
  double sum_low;           // float64 only: of (x * kLowFactor)^2 for smaller ones
  double max_abs;           // of the finite values; 0 if there is none
  std::int64_t zeros;       // +0 and -0
  std::int64_t underflows;  // 0 < |x| < kSmallestNormalFloat16, whatever the dtype
  std::int64_t infs;
  std::int64_t nans;
  std::int64_t overflows;  // finite values whose result, as stored, is not; in-place loops
};

/// Every function takes elements of its dtype at any alignment that the dtype allows, `count` >= 0 of
/// them (beyond a unit, the sums of the units are added), and overwrites `*stats`. Sums are rounded in an
/// order that depends on the position in the unit only, so they are the same for any address.
struct KernelTable {
  const char* name;  // "baseline", "avx2", "avx512"

  /// Reads only.
  void (*stats[kDataTypes])(const void* values, std::int64_t count, UnitStats* stats);

  /// The same for a whole unit, and fetches what lies at `next` meanwhile.
  void (*whole_unit_stats[kDataTypes])(const void* values, const void* next, UnitStats* stats);

  /// Multiplies in place as torch's unscale does: `inv_scale == 1` writes nothing (torch's would quiet
  /// a signalling NaN of 16 bits), else the product in float32 (float64 for float64) is rounded to
  /// nearest even. `stats` are of the values before, but `overflows`.
  void (*unscale_with_stats[kDataTypes])(void* values, std::int64_t count, float inv_scale,
                                         UnitStats* stats);

  /// The same product, then clamped to [-clip_value, clip_value] in the computation type before the one
  /// rounding; NaN stays NaN. An inf is clamped too, and counts in `infs`; a product beyond the dtype
  /// that is clamped is no overflow.
  void (*unscale_clamp[kDataTypes])(void* values, std::int64_t count, float inv_scale,
                                    double clip_value, UnitStats* stats);

  /// Multiplies in place, whatever the factor is.
  void (*multiply[kDataTypes])(void* values, std::int64_t count, float factor);
};

extern const KernelTable kBaselineKernels;
#if defined(AMPSCALER_X86_KERNELS)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#endif

}  // namespace ampscaler::cpu
