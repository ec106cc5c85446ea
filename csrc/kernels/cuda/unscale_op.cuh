// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The launches of `unscale_`, over any launcher: the CUDA runtime in unscale.cu, the SIMT harness in
// tests. One for a list of up to 2,040 tensors, whatever their dtypes; none for an empty list.

#include "kernels/cuda/pass_grid.h"
#include "kernels/cuda/unscale_kernels.cuh"

namespace ampscaler::cuda {

template <int kThreads = kPassThreads, typename Launcher>
void unscale_pass(Launcher& launcher, const core::UnitPlan& plan, const float* inv_scale,
                  float* found_inf, int multiprocessors) {
  core::for_each_table(plan, [&]<int kCapacity>(const core::UnitTable<kCapacity>& table,
                                                core::TablePlace /*place*/) {
    if (table.units > 0) {
      launcher.launch(dim3(pass_blocks(table.units, multiprocessors, kThreads)), dim3(kThreads),
                      &unscale_kernel<kThreads, kCapacity>, table, inv_scale, found_inf);
    }
  });
}

}  // namespace ampscaler::cuda
