// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Multiplies every gradient of a table by inv_scale and notes non-finite inputs. Reads and writes
// each element once. Reference: kernels/cpu/unscale_cpu.cpp. Contract: ampscaler/ops.h.

#include "kernels/cuda/multiply_units.cuh"
#include "kernels/cuda/unit_loop.cuh"

namespace ampscaler::cuda {

// aten's CUDA operator narrows before it tests, so that a float64 beyond float32 counts as an
// overflow there; so does it here.
template <typename Value>
__device__ bool is_finite_on_cuda(Value value) {
  return core::is_finite(static_cast<float>(value));
}

// The flag is written by a thread of each warp that finds something, or exchanges would queue for the one
// address wherever a whole gradient is not finite. All write 1, and nobody reads it in this launch.
template <int kThreads, int kCapacity>
__global__ void __launch_bounds__(kThreads, min_blocks(kThreads))
    unscale_kernel(AMPSCALER_GRID_CONSTANT(core::UnitTable<kCapacity>) table,
                   const float* inv_scale, float* found_inf) {
  const float factor = *inv_scale;
  for_each_unit<kThreads>(
      table, [&](const core::Unit& unit, std::uint32_t entry, std::uint32_t id) {
        bool finite = true;
        with_dtype(unit.dtype, unit_memory(table, entry, id), [&](auto* values) {
          multiply_unit(values, static_cast<int>(unit.elements), factor,
                        [&](auto value) { finite = finite && is_finite_on_cuda(value); });
        });
        if (__any_sync(kAllLanes, finite ? 0 : 1) && lane_id() == 0) {
          atomicExch(found_inf, 1.0F);
        }
      });
}

}  // namespace ampscaler::cuda
