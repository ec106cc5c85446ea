// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The second pass of clipping. Most steps do not clip: then the kernel ends without a look at the
// gradients, on values that nobody writes meanwhile, and the host need not know. Contract: ampscaler/ops.h.

#include "kernels/cuda/multiply_units.cuh"
#include "kernels/cuda/unit_loop.cuh"

namespace ampscaler::cuda {

template <int kThreads, int kCapacity>
__global__ void __launch_bounds__(kThreads, min_blocks(kThreads))
    scale_grads_kernel(AMPSCALER_GRID_CONSTANT(core::UnitTable<kCapacity>) table,
                       const float* factor, const float* found_inf) {
  const float value = *factor;
  if (value == 1.0F || *found_inf != 0.0F) {
    return;
  }
  for_each_unit<kThreads>(
      table, [&](const core::Unit& unit, std::uint32_t entry, std::uint32_t id) {
        with_dtype(unit.dtype, unit_memory(table, entry, id), [&](auto* values) {
          multiply_unit(values, static_cast<int>(unit.elements), value, [](auto) {});
        });
      });
}

}  // namespace ampscaler::cuda
