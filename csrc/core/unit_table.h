// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// A plan of units as arguments of CUDA kernels: nothing is uploaded before a launch, and a captured graph
// has its own copy. A list that is too long for one kernel's arguments becomes several launches.
//
//   plan    unit_end = {3, 4, 9 | 11, 12}        two tables, each with units of its own from 0
//   tables  {3, 4, 9} and {2, 3}

#include <algorithm>
#include <cstdint>

#include "core/macros.h"
#include "core/units.h"

namespace ampscaler::core {

/// What a kernel can get in all, from CUDA 12.1 on.
inline constexpr std::int64_t kKernelArgumentBytes = 32764;

/// Entries of the two sizes of table. Most lists fit the small one, 2 KB, and a launch copies its arguments.
inline constexpr int kSmallTable = 120;
inline constexpr int kLargeTable = 2040;

/// Kernels read it in place, so they must only ever index it, `table.entries[i].field`.
template <int kCapacity>
struct UnitTable {
  PlanEntry entries[kCapacity];
  std::uint32_t count;
  std::uint32_t units;
};

/// What is left for a kernel's other arguments.
inline constexpr std::int64_t kOtherArgumentBytes =
    kKernelArgumentBytes - static_cast<std::int64_t>(sizeof(UnitTable<kLargeTable>));

/// The same search as find_entry(), by index. Entries without elements are passed over.
template <int kCapacity>
AMPSCALER_HOST_DEVICE inline std::uint32_t find_entry(const UnitTable<kCapacity>& table,
                                                      std::uint32_t unit) {
  std::uint32_t low = 0;
  std::uint32_t high = table.count - 1;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (table.entries[middle].unit_end <= unit) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// The units of all entries before `entry`.
template <int kCapacity>
AMPSCALER_HOST_DEVICE inline std::uint32_t first_unit(const UnitTable<kCapacity>& table,
                                                      std::uint32_t entry) {
  return entry == 0 ? 0 : table.entries[entry - 1].unit_end;
}

template <int kCapacity>
AMPSCALER_HOST_DEVICE inline Unit unit_of(const UnitTable<kCapacity>& table, std::uint32_t entry,
                                          std::uint32_t unit) {
  const std::uint32_t first = first_unit(table, entry);
  const std::uint32_t end = table.entries[entry].unit_end;
  const std::uint32_t tail = table.entries[entry].tail_and_dtype;
  const auto dtype = static_cast<DataType>(tail >> 28U);
  const std::uint64_t offset = static_cast<std::uint64_t>(unit - first) * kUnitBytes;
  return {table.entries[entry].address + offset,
          unit + 1 == end ? static_cast<std::int64_t>(tail & 0xFF'FFFFU) : unit_elements(dtype),
          dtype};
}

/// The first unit of part `part` when units are dealt to `parts` blocks.
AMPSCALER_HOST_DEVICE constexpr std::uint32_t share_begin(std::uint32_t units, std::uint32_t part,
                                                          std::uint32_t parts) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(units) * part / parts);
}

/// Blocks that together stay on the GPU until the end, if each has `units_per_block` units or more.
inline std::uint32_t block_count(std::uint32_t units, std::uint32_t units_per_block,
                                 std::uint32_t most) {
  const auto blocks = (static_cast<std::uint64_t>(units) + units_per_block - 1) / units_per_block;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(blocks, 1, std::max(most, 1U)));
}

/// Where a table lies in its plan.
struct TablePlace {
  std::uint32_t first_entry;
  std::uint32_t first_unit;
  bool last;
};

/// Entries `place.first_entry` and on, `count` of them, as a table.
template <int kCapacity>
void fill_table(const UnitPlan& plan, TablePlace place, std::uint32_t count,
                UnitTable<kCapacity>& table) {
  for (std::uint32_t i = 0; i < count; ++i) {
    table.entries[i] = plan.entries()[place.first_entry + i];
    table.entries[i].unit_end -= place.first_unit;
  }
  table.count = count;
  table.units = count == 0 ? 0 : table.entries[count - 1].unit_end;
}

/// Calls `visit(table, place)` for each table of the plan, in order; for a plan without entries with one
/// empty table. What is behind the last entry of a table is not initialised.
template <typename Visit>
void for_each_table(const UnitPlan& plan, const Visit& visit) {
  const auto entries = static_cast<std::uint32_t>(plan.entries().size());
  if (entries <= kSmallTable) {
    UnitTable<kSmallTable> table;
    fill_table(plan, {0, 0, true}, entries, table);
    visit(table, TablePlace{0, 0, true});
    return;
  }
  UnitTable<kLargeTable> table;
  for (std::uint32_t first = 0; first < entries; first += kLargeTable) {
    const std::uint32_t count = std::min<std::uint32_t>(kLargeTable, entries - first);
    const TablePlace place = {first, first_unit(plan.entries().data(), first),
                              first + count == entries};
    fill_table(plan, place, count, table);
    visit(table, place);
  }
}

}  // namespace ampscaler::core
