// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// One pass over a plan: a loop is run on every unit, and what it has seen is summed exactly. Whatever the
// threads do, the sums have the same bits.

#include <cfloat>
#include <cstdint>
#include <vector>

#include "core/grad_stats.h"
#include "core/ranges.h"
#include "core/units.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/power_sum.h"
#include "kernels/cpu/unit_loop.h"

namespace ampscaler::cpu {

/// Norms other than the 2-norm, the largest magnitude and the count for 0.
inline bool is_power_norm(double norm_type) {
  return norm_type != 2.0 && norm_type != 0.0 && norm_type <= DBL_MAX;
}

/// Adds all but the norm's terms.
inline void add_counts(core::GradSums& sums, const UnitStats& unit, std::int64_t elements) {
  sums.zeros += unit.zeros;
  sums.underflows += unit.underflows;
  sums.elements += elements;
  sums.infs += unit.infs;
  sums.nans += unit.nans;
  sums.overflows += unit.overflows;
  const auto bits = __builtin_bit_cast(std::int64_t, unit.max_abs);
  sums.max_abs_bits = sums.max_abs_bits < bits ? bits : sums.max_abs_bits;
}

inline void add_squares(core::GradSums& sums, const UnitStats& unit, core::DataType dtype) {
  core::add_exactly(sums.limbs, unit.sum);
  if (dtype == core::kFloat64) {
    core::add_exactly(sums.limbs, unit.sum_high, core::kHighShift);
    core::add_exactly(sums.limbs, unit.sum_low, core::kLowShift);
  }
}

/// The sums of one worker, on cache lines of their own.
struct alignas(64) WorkerSums {
  core::GradSums sums = {};
  std::int64_t counted = -1;  // the last tensor that the 0-"norm" has counted
};

/// Adds what a unit contributes to the norm. `powers` is its power_sum(), for norms that need it.
inline void add_norm_terms(WorkerSums& worker, const core::Unit& unit, std::int64_t entry,
                           const UnitStats& stats, double norm_type, double powers) {
  if (is_power_norm(norm_type)) {
    core::add_exactly(worker.sums.limbs, powers);
  } else if (norm_type != 0.0) {
    add_squares(worker.sums, stats, unit.dtype);
  } else if (stats.zeros < unit.elements && worker.counted != entry) {
    worker.counted = entry;
    core::add_exactly(worker.sums.limbs, 1.0);
  }
}

/// Runs `loop(unit, next, &stats)`, which may write, on every unit of the plan.
template <typename Loop>
core::GradSums collect(const core::UnitPlan& plan, double norm_type, const Loop& loop) {
  // A tensor must not be counted by two workers.
  const std::int64_t ranges = norm_type == 0.0 ? 1 : range_count(plan);
  std::vector<WorkerSums> sums(static_cast<std::size_t>(worker_count(ranges)));
  for_each_unit(plan, ranges, [&](const UnitVisit& visit) {
    WorkerSums& mine = sums[static_cast<std::size_t>(visit.worker)];
    const double powers = is_power_norm(norm_type) ? power_sum(visit.unit, norm_type) : 0.0;
    UnitStats stats;
    loop(visit.unit, visit.next, &stats);
    add_counts(mine.sums, stats, visit.unit.elements);
    add_norm_terms(mine, visit.unit, visit.entry, stats, norm_type, powers);
  });
  for (std::size_t i = 1; i < sums.size(); ++i) {
    core::merge(sums[0].sums, sums[i].sums);
  }
  return sums[0].sums;
}

}  // namespace ampscaler::cpu
