// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The launches of `scale_grads_`, over any launcher.

#include "kernels/cuda/pass_grid.h"
#include "kernels/cuda/scale_grads_kernels.cuh"

namespace ampscaler::cuda {

template <int kThreads = kPassThreads, typename Launcher>
void scale_grads_pass(Launcher& launcher, const core::UnitPlan& plan, const float* factor,
                      const float* found_inf, int multiprocessors) {
  core::for_each_table(plan, [&]<int kCapacity>(const core::UnitTable<kCapacity>& table,
                                                core::TablePlace /*place*/) {
    if (table.units > 0) {
      launcher.launch(dim3(pass_blocks(table.units, multiprocessors, kThreads)), dim3(kThreads),
                      &scale_grads_kernel<kThreads, kCapacity>, table, factor, found_inf);
    }
  });
}

}  // namespace ampscaler::cuda
