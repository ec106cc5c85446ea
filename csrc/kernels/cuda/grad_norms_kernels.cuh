// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The norm of each tensor, by two kernels: the sums of all units, so that one large tensor among small ones
// still keeps the GPU busy, then for each tensor those of its units. Contract: ampscaler/ops.h.

#include "kernels/cuda/power_stats_kernels.cuh"

namespace ampscaler::cuda {

inline constexpr int kNormThreads = 128;

// `sums` has a place for each unit of the table.
template <int kThreads, int kCapacity>
__global__ void __launch_bounds__(kThreads, min_blocks(kThreads))
    unit_sums_kernel(AMPSCALER_GRID_CONSTANT(core::UnitTable<kCapacity>) table, UnitSums* sums) {
  for_each_unit<kThreads>(
      table, [&](const core::Unit& unit, std::uint32_t entry, std::uint32_t id) {
        with_dtype(unit.dtype, unit_memory(table, entry, id), [&](auto* values) {
          const UnitSums found = sum_unit(values, static_cast<int>(unit.elements), ReadOnly());
          if (lane_id() == 0) {
            sums[id] = found;
          }
        });
      });
}

template <int kThreads, int kCapacity>
__global__ void __launch_bounds__(kThreads, min_blocks(kThreads))
    unit_powers_kernel(AMPSCALER_GRID_CONSTANT(core::UnitTable<kCapacity>) table, double norm_type,
                       UnitSums* sums) {
  for_each_unit<kThreads>(table, [&](const core::Unit& unit, std::uint32_t entry,
                                     std::uint32_t id) {
    const UnitSums found = sum_powers(unit, unit_memory(table, entry, id), ReadOnly(), norm_type);
    if (lane_id() == 0) {
      sums[id] = found;
    }
  });
}

// For 0 the number of elements that are not 0, like torch's vector norm.
__device__ inline void add_norm_terms(core::GradSums& tensor, const UnitSums& unit,
                                      std::int64_t elements, double norm_type) {
  if (norm_type == 0.0) {
    add_exactly(tensor, static_cast<double>(elements - unit.zeros));
  } else {
    add_squares(tensor, unit);  // or powers
  }
}

// A block for each entry of the table. One without elements has norm 0.
template <int kThreads, int kCapacity>
__global__ void tensor_norms_kernel(AMPSCALER_GRID_CONSTANT(core::UnitTable<kCapacity>) table,
                                    const UnitSums* sums, const float* scale, double norm_type,
                                    float* norms) {
  AMPSCALER_SHARED(core::GradSums, tensor);
  const std::uint32_t entry = blockIdx.x;
  const std::uint32_t first = core::first_unit(table, entry);
  const std::uint32_t end = table.entries[entry].unit_end;
  clear<kThreads>(tensor);
  __syncthreads();  // sums are cleared
  for (std::uint32_t id = first + threadIdx.x; id < end; id += kThreads) {
    add_counts(tensor, sums[id]);
    add_norm_terms(tensor, sums[id], core::unit_of(table, entry, id).elements, norm_type);
  }
  __syncthreads();  // all units are added
  if (threadIdx.x == 0) {
    double stats[core::kStatsSlots];
    float factors[core::kFactorSlots];
    tensor.elements = static_cast<std::int64_t>(end - first);  // it matters whether there are any
    core::finish(tensor, norm_type, {static_cast<double>(*scale)}, core::ClipRule(), stats,
                 factors);
    norms[entry] = factors[core::kRoundedNorm];
  }
}

}  // namespace ampscaler::cuda
