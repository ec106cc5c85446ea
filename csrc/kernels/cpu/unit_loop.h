// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The one parallel region of a pass: the units of all tensors together, as contiguous ranges of about
// equal cost, which may begin inside a tensor. torch's threads take them as they come to it.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <c10/util/FunctionRef.h>

#include "core/units.h"

namespace ampscaler::cpu {

/// Some ranges for each of torch's threads; 1 for a small list, where a region costs more than it saves, and
/// inside a parallel region.
std::int64_t range_count(const core::UnitPlan& plan);

/// Threads that share `ranges`.
std::int64_t worker_count(std::int64_t ranges);

/// Neighbouring ranges that a thread takes together: [begin, end).
struct RangeShare {
  std::int64_t begin;
  std::int64_t end;
};

/// Calls `body` with shares that hold every range id below `ranges` once, on any thread and in any order; with
/// 1 on the calling thread. Calls with the same `worker`, which is below worker_count(), come one after the
/// other. All threads compute with the caller's rounding and flushing of denormals.
void run_ranges(std::int64_t ranges,
                c10::function_ref<void(std::int64_t worker, RangeShare share)> body);

/// An address of a plan.
inline void* as_pointer(std::uint64_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): that is what it holds
  return reinterpret_cast<void*>(address);
}

/// The memory of a unit, for a table of loops.
inline void* memory_of(const core::Unit& unit) { return as_pointer(unit.address); }

/// So many tensors ahead are the first bytes fetched: the processor foresees what follows within a tensor,
/// but not the next one.
inline constexpr std::int64_t kPrefetchEntries = 8;

// always_inline: g++ takes a function that only prefetches for one without effect, and drops its calls.
[[gnu::always_inline]] inline void prefetch_entry(const core::PlanEntry* entries,
                                                  std::int64_t index) {
  constexpr std::uint64_t kLine = 64;
  constexpr std::uint64_t kPrefetchBytes = 4 * kLine;
  for (std::uint64_t offset = 0; offset < kPrefetchBytes; offset += kLine) {
    // Beyond the end of a small tensor it is no access: a prefetch never faults.
    __builtin_prefetch(as_pointer(entries[index].address + offset));
  }
}

/// Where the unit after `unit` of a share begins that ends before `end`; 0 after the last.
inline std::uint64_t next_address(const core::PlanEntry* entries, std::int64_t entry,
                                  std::uint32_t unit, std::uint32_t end, std::uint64_t address) {
  if (unit + 1 == end) {
    return 0;
  }
  return unit + 1 < entries[entry].unit_end ? address + core::kUnitBytes
                                            : entries[entry + 1].address;
}

/// A unit on its way through a loop.
struct UnitVisit {
  core::Unit unit;
  std::int64_t entry;  // the index of its tensor
  std::uint64_t next;  // where the unit after it begins; 0 for the last of a share
  std::int64_t range;  // the first of its share: they ascend with the units
  std::int64_t worker;
};

/// Calls `visit(unit, entry, next)` for the units [begin, end) of a plan, in order; `entry` is the index of its
/// tensor.
template <typename Visit>
void visit_units(const core::UnitPlan& plan, std::uint32_t begin, std::uint32_t end,
                 const Visit& visit) {
  const core::PlanEntry* entries = plan.entries().data();
  const auto count = static_cast<std::int64_t>(plan.entries().size());
  std::int64_t entry = begin == end ? 0 : core::find_entry(entries, count, begin);
  for (std::uint32_t unit = begin; unit < end; ++unit) {
    if (entries[entry].unit_end == unit) {
      ++entry;
      prefetch_entry(entries, std::min(entry + kPrefetchEntries, count - 1));
    }
    const core::Unit found = core::unit_of(entries, entry, unit);
    visit(found, entry, next_address(entries, entry, unit, end, found.address));
  }
}

/// Calls `visit(const UnitVisit&)` for every unit of the plan. Units of one share come in order.
template <typename Visit>
void for_each_unit(const core::UnitPlan& plan, std::int64_t ranges, const Visit& visit) {
  if (plan.unit_total() == 0) {
    return;
  }
  const std::vector<std::uint32_t> bounds = plan.split(ranges);
  run_ranges(ranges, [&](std::int64_t worker, RangeShare share) {
    visit_units(plan, bounds[static_cast<std::size_t>(share.begin)],
                bounds[static_cast<std::size_t>(share.end)],
                [&](const core::Unit& unit, std::int64_t entry, std::uint64_t next) {
                  visit(UnitVisit{unit, entry, next, share.begin, worker});
                });
  });
}

}  // namespace ampscaler::cpu
