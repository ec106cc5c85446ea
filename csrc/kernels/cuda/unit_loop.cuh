// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// How a grid goes through the units of a table. A block has a range of units, and its warps take them in
// turn; a warp has a unit for itself, so nobody waits for anybody:
//
//   block 0: units 0-15      block 1: units 16-31
//   warp     0 1 2 3 0 1 ...          0 1 2 3 0 1 ...

#include <cstdint>

#include "core/unit_table.h"
#include "kernels/cuda/device_compat.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/pass_grid.h"

namespace ampscaler::cuda {

// Of a kernel whose blocks have `threads`, for __launch_bounds__.
constexpr int min_blocks(int threads) {
  return kBlocksPerMultiprocessor * kPassThreads /
         (threads < kPassThreads ? kPassThreads : threads);
}

__device__ inline std::uint32_t warp_id() { return threadIdx.x / kWarpSize; }

// The memory of unit `id`. The address becomes a pointer before anything is added to it: so the compiler
// knows that it points to global memory, for which there are faster instructions.
template <int kCapacity>
__device__ void* unit_memory(const core::UnitTable<kCapacity>& table, std::uint32_t entry,
                             std::uint32_t id) {
  const std::uint32_t first = core::first_unit(table, entry);
  auto* begin =
      reinterpret_cast<char*>(table.entries[entry].address);  // NOLINT(performance-no-int-to-ptr)
  return begin + static_cast<std::int64_t>(id - first) * core::kUnitBytes;
}

// Calls `visit(unit, entry, id)` in all lanes of the warp that has the unit. `id` counts through the table.
template <int kThreads, int kCapacity, typename Visit>
__device__ void for_each_unit(const core::UnitTable<kCapacity>& table, Visit visit) {
  const std::uint32_t end = core::share_begin(table.units, blockIdx.x + 1, gridDim.x);
  std::uint32_t id = core::share_begin(table.units, blockIdx.x, gridDim.x) + warp_id();
  if (id >= end) {
    return;
  }
  std::uint32_t entry = core::find_entry(table, id);
  for (; id < end; id += kThreads / kWarpSize) {
    while (table.entries[entry].unit_end <= id) {
      ++entry;
    }
    visit(core::unit_of(table, entry, id), entry, id);
  }
}

}  // namespace ampscaler::cuda
