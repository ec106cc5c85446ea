// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Where the first inf or NaN of each tensor is, and how many there are: three kernels, of which the first
// clears and the last writes out the rows of the result. Looked at after an overflow, so it is simple
// rather than fast. Contract: ampscaler/ops.h.

#include "kernels/cuda/unit_loop.cuh"

namespace ampscaler::cuda {

inline constexpr int kRowThreads = 128;
inline constexpr int kRowWords = 3;

/// In bit 24 of an entry's tail_and_dtype: an element is a pair of numbers, and counts once.
inline constexpr std::uint32_t kComplexEntry = 1U << 24U;

// A row while it is collected; the minimum of its first word is the first element.
//   first: index * 4 + kind       unused       count
enum RowWord : std::uint8_t { kFirst, kKind, kCount };
inline constexpr unsigned long long kNothing = ~0ULL;

enum NonfiniteKind : std::uint8_t { kFiniteElement, kInfElement, kNanElement };

template <typename Value>
__device__ unsigned kind_of(Value value) {
  return value != value ? kNanElement : core::is_finite(value) ? kFiniteElement : kInfElement;
}

__device__ inline unsigned long long finding_code(std::uint64_t index, unsigned kind) {
  return index * 4 + kind;
}

__device__ inline void add_finding(unsigned long long* row, std::uint64_t index, unsigned kind,
                                   unsigned count) {
  const unsigned long long code = finding_code(index, kind);
  atomicMin(row + kFirst, code);
  atomicAdd(row + kCount, static_cast<unsigned long long>(count));
}

// All lanes of a warp together; lanes add what they have found by themselves.
template <typename T>
__device__ void scan_unit(const T* values, int elements, int width, std::uint64_t first_index,
                          unsigned long long* row) {
  unsigned count = 0;
  int first = 0;
  unsigned first_kind = kFiniteElement;
  for (int i = lane_id(); i < elements / width; i += kWarpSize) {
    const T* element = values + static_cast<std::int64_t>(i) * width;
    const unsigned a = kind_of(load(element[0]));
    const unsigned b = kind_of(load(element[width - 1]));
    const unsigned kind = a > b ? a : b;
    if (kind != kFiniteElement && count == 0) {
      first = i;
      first_kind = kind;
    }
    count += kind != kFiniteElement ? 1U : 0U;
  }
  if (count > 0) {
    add_finding(row, first_index + static_cast<std::uint64_t>(first), first_kind, count);
  }
}

template <int kThreads>
__global__ void clear_findings_kernel(unsigned long long* rows, std::uint32_t count) {
  for (std::uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < count;
       i += gridDim.x * kThreads) {
    rows[i * kRowWords + kFirst] = kNothing;
    rows[i * kRowWords + kKind] = 0;
    rows[i * kRowWords + kCount] = 0;
  }
}

// The index in its tensor of the first element of a unit; `width` numbers are an element.
template <int kCapacity>
__device__ std::uint64_t first_element(const core::UnitTable<kCapacity>& table, std::uint32_t entry,
                                       std::uint32_t id, int width) {
  const std::uint32_t first = core::first_unit(table, entry);
  const std::uint64_t offset = static_cast<std::uint64_t>(id - first) * core::kUnitBytes;
  const std::int64_t bytes = core::element_bytes(core::entry_dtype(table.entries[entry])) * width;
  return offset / static_cast<std::uint64_t>(bytes);
}

// `rows` has a place for each entry of the table.
template <int kThreads, int kCapacity>
__global__ void __launch_bounds__(kThreads, min_blocks(kThreads))
    scan_units_kernel(AMPSCALER_GRID_CONSTANT(core::UnitTable<kCapacity>) table,
                      unsigned long long* rows) {
  for_each_unit<kThreads>(
      table, [&](const core::Unit& unit, std::uint32_t entry, std::uint32_t id) {
        const int width = (table.entries[entry].tail_and_dtype & kComplexEntry) != 0 ? 2 : 1;
        const std::uint64_t index = first_element(table, entry, id, width);
        with_dtype(unit.dtype, unit_memory(table, entry, id), [&](const auto* values) {
          scan_unit(values, static_cast<int>(unit.elements), width, index,
                    rows + static_cast<std::uint64_t>(entry) * kRowWords);
        });
      });
}

template <int kThreads>
__global__ void write_findings_kernel(unsigned long long* rows, std::uint32_t count) {
  for (std::uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < count;
       i += gridDim.x * kThreads) {
    const unsigned long long first = rows[i * kRowWords + kFirst];
    rows[i * kRowWords + kFirst] = first == kNothing ? kNothing : first / 4;  // -1 if nothing
    rows[i * kRowWords + kKind] = first == kNothing ? 0 : first % 4;
  }
}

}  // namespace ampscaler::cuda
