// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The launches of `grad_norms`, over any launcher: two per table.

#include "kernels/cuda/grad_norms_kernels.cuh"
#include "kernels/cuda/pass_grid.h"

namespace ampscaler::cuda {

/// `sums` has a place for each unit of the plan, `norms` one for each entry.
template <int kThreads = kPassThreads, typename Launcher>
void grad_norms_pass(Launcher& launcher, const core::UnitPlan& plan, const float* scale,
                     double norm_type, UnitSums* sums, float* norms, int multiprocessors) {
  const bool powers = norm_type != 2.0 && norm_type <= DBL_MAX;
  core::for_each_table(
      plan, [&]<int kCapacity>(const core::UnitTable<kCapacity>& table, core::TablePlace place) {
        UnitSums* of_table = sums + place.first_unit;
        const dim3 grid(pass_blocks(table.units, multiprocessors, kThreads));
        if (powers && table.units > 0) {
          launcher.launch(grid, dim3(kThreads), &unit_powers_kernel<kThreads, kCapacity>, table,
                          norm_type, of_table);
        } else if (table.units > 0) {
          launcher.launch(grid, dim3(kThreads), &unit_sums_kernel<kThreads, kCapacity>, table,
                          of_table);
        }
        if (table.count > 0) {
          launcher.launch(dim3(table.count), dim3(kNormThreads),
                          &tensor_norms_kernel<kNormThreads, kCapacity>, table,
                          static_cast<const UnitSums*>(of_table), scale, norm_type,
                          norms + place.first_entry);
        }
      });
}

}  // namespace ampscaler::cuda
