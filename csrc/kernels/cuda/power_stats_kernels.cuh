// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The same passes for norms other than the 2-norm and the largest magnitude, in plain double arithmetic,
// element by element: a convenience, correct and not fast.

#include "kernels/cuda/grad_stats_kernels.cuh"

namespace ampscaler::cuda {

template <typename T, typename Action, typename Lane>
__device__ void visit_power(T& element, const Action& action, double norm_type, double& powers,
                            Lane& lane) {
  const auto value = load(element);
  visit_element(element, action, lane);
  const double magnitude = fabs(static_cast<double>(value));
  if (norm_type != 0.0 && core::is_finite(magnitude)) {
    powers += norm_type == 1.0 ? magnitude : pow(magnitude, norm_type);
  }
}

// As sum_unit(), but `sum` is of powers, and 0 for the norm type 0.
template <typename T, typename Action>
__device__ UnitSums sum_powers(T* values, int elements, const Action& action, double norm_type) {
  LaneSums<typename Compute<T>::Type> lane = {};
  double powers = 0.0;
  for (int i = lane_id(); i < elements; i += kWarpSize) {
    visit_power(values[i], action, norm_type, powers, lane);
  }
  UnitSums unit = sum_lanes(lane);
  unit.sum = warp_sum(powers);
  unit.sum_high = 0.0;
  unit.sum_low = 0.0;
  return unit;
}

template <typename Action>
__device__ UnitSums sum_powers(const core::Unit& unit, void* memory, const Action& action,
                               double norm_type) {
  UnitSums sums = {};
  with_dtype(unit.dtype, memory, [&](auto* values) {
    sums = sum_powers(values, static_cast<int>(unit.elements), action, norm_type);
  });
  return sums;
}

// For norm type 0, which counts tensors: a warp has a whole tensor, so that none is counted twice.
template <int kThreads, typename Action, int kCapacity>
__device__ void count_tensors(const core::UnitTable<kCapacity>& table, const Action& action,
                              core::GradSums& block) {
  constexpr std::uint32_t kWarps = kThreads / kWarpSize;
  for (std::uint32_t entry = blockIdx.x * kWarps + warp_id(); entry < table.count;
       entry += gridDim.x * kWarps) {
    bool nonzero = false;
    std::uint32_t id = core::first_unit(table, entry);
    for (; id < table.entries[entry].unit_end; ++id) {
      const core::Unit unit = core::unit_of(table, entry, id);
      const UnitSums sums = sum_powers(unit, unit_memory(table, entry, id), action, 0.0);
      if (lane_id() == 0) {
        add_counts(block, sums);
        nonzero = nonzero || sums.zeros < unit.elements;
      }
    }
    if (nonzero) {  // in lane 0
      add_exactly(block, 1.0);
    }
  }
}

template <typename Action, int kThreads, int kCapacity>
__global__ void __launch_bounds__(kThreads, min_blocks(kThreads))
    power_stats_kernel(AMPSCALER_GRID_CONSTANT(core::UnitTable<kCapacity>) table,
                       AMPSCALER_GRID_CONSTANT(PassArguments) arguments) {
  AMPSCALER_SHARED(core::GradSums, block);
  const Action action = begin_pass<Action, kThreads>(arguments, block);
  if (arguments.norm_type == 0.0) {
    count_tensors<kThreads>(table, action, block);
  } else {
    for_each_unit<kThreads>(
        table, [&](const core::Unit& unit, std::uint32_t entry, std::uint32_t id) {
          const UnitSums sums =
              sum_powers(unit, unit_memory(table, entry, id), action, arguments.norm_type);
          if (lane_id() == 0) {
            add_exactly(block, sums.sum);
            add_counts(block, sums);
          }
        });
  }
  publish<kThreads>(arguments, block, number_or(scalar_of(arguments, kMaxNorm), arguments.limit));
}

}  // namespace ampscaler::cuda
