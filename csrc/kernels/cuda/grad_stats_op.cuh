// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The launches of the passes that end in statistics, over any launcher: the CUDA runtime in the .cu files,
// the SIMT harness in tests. One launch for a list of up to 2,040 tensors, whatever their dtypes.

#include "kernels/cuda/grad_stats_kernels.cuh"
#include "kernels/cuda/pass_grid.h"
#include "kernels/cuda/power_stats_kernels.cuh"

namespace ampscaler::cuda {

static_assert(sizeof(PassArguments) <= core::kOtherArgumentBytes);

/// Also a list without elements is one launch: its results depend on the scale, and earlier calls may
/// have left sums.
template <typename Action, int kThreads = kPassThreads, typename Launcher>
void stats_pass(Launcher& launcher, const core::UnitPlan& plan, PassArguments arguments,
                int multiprocessors) {
  arguments.elements = plan.elements();
  const bool powers = arguments.norm_type != 2.0 && arguments.norm_type <= DBL_MAX;
  core::for_each_table(
      plan, [&]<int kCapacity>(const core::UnitTable<kCapacity>& table, core::TablePlace place) {
        arguments.mode = place.last ? PassMode::kFinish : PassMode::kCollect;
        const dim3 grid(pass_blocks(table.units, multiprocessors, kThreads));
        if constexpr (!std::is_same_v<Action, UnscaleClamp>) {
          if (powers) {
            launcher.launch(grid, dim3(kThreads), &power_stats_kernel<Action, kThreads, kCapacity>,
                            table, arguments);
            return;
          }
        }
        launcher.launch(grid, dim3(kThreads), &stats_kernel<Action, kThreads, kCapacity>, table,
                        arguments);
      });
}

}  // namespace ampscaler::cuda
