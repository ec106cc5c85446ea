// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The passes that end in statistics, for the 2-norm and the largest magnitude: read only, unscaling in
// place, and clamping in place. One read of every gradient. Contract: ampscaler/ops.h.

#include <type_traits>

#include "kernels/cuda/block_sums.cuh"

namespace ampscaler::cuda {

template <typename Action>
__device__ Action make_action(const PassArguments& arguments, float inverse) {
  if constexpr (std::is_same_v<Action, Unscale>) {
    return {inverse};
  } else if constexpr (std::is_same_v<Action, UnscaleClamp>) {
    return {inverse, arguments.limit};
  } else {
    return {};
  }
}

// Prepares the block's sums, and tells all threads what to do.
template <typename Action, int kThreads>
__device__ Action begin_pass(const PassArguments& arguments, core::GradSums& block) {
  AMPSCALER_SHARED(float, inverse);
  clear<kThreads>(block);
  if (Action::kStores && threadIdx.x == 0) {
    inverse = core::inverse_scale(scaling_of(arguments));
  }
  __syncthreads();  // sums are cleared, the factor is known
  return make_action<Action>(arguments, Action::kStores ? inverse : 1.0F);
}

template <typename Action, int kThreads, int kCapacity>
__global__ void __launch_bounds__(kThreads, min_blocks(kThreads))
    stats_kernel(AMPSCALER_GRID_CONSTANT(core::UnitTable<kCapacity>) table,
                 AMPSCALER_GRID_CONSTANT(PassArguments) arguments) {
  AMPSCALER_SHARED(core::GradSums, block);
  const Action action = begin_pass<Action, kThreads>(arguments, block);
  for_each_unit<kThreads>(
      table, [&](const core::Unit& unit, std::uint32_t entry, std::uint32_t id) {
        with_dtype(unit.dtype, unit_memory(table, entry, id), [&](auto* values) {
          const UnitSums sums = sum_unit(values, static_cast<int>(unit.elements), action);
          if (lane_id() == 0) {
            add_squares(block, sums);
            add_counts(block, sums);
          }
        });
      });
  const bool clamps = std::is_same_v<Action, UnscaleClamp>;
  publish<kThreads>(arguments, block,
                    clamps ? HUGE_VAL : number_or(scalar_of(arguments, kMaxNorm), arguments.limit));
}

}  // namespace ampscaler::cuda
