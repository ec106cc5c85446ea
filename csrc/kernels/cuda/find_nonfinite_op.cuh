// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The launches of `find_nonfinite`, over any launcher.

#include <algorithm>
#include <vector>

#include "kernels/cuda/find_nonfinite_kernels.cuh"
#include "kernels/cuda/pass_grid.h"

namespace ampscaler::cuda {

/// `table` as the kernel wants it. `is_complex` has a value for each entry of the plan.
template <int kCapacity>
core::UnitTable<kCapacity> mark_complex(const core::UnitTable<kCapacity>& table,
                                        const std::vector<bool>& is_complex,
                                        std::uint32_t first_entry) {
  core::UnitTable<kCapacity> marked = table;
  for (std::uint32_t i = 0; i < table.count; ++i) {
    marked.entries[i].tail_and_dtype |= is_complex[first_entry + i] ? kComplexEntry : 0;
  }
  return marked;
}

/// `rows` has three words for each entry of the plan.
template <int kThreads = kPassThreads, typename Launcher>
void find_nonfinite_pass(Launcher& launcher, const core::UnitPlan& plan,
                         const std::vector<bool>& is_complex, std::int64_t* rows,
                         int multiprocessors) {
  const auto count = static_cast<std::uint32_t>(plan.entries().size());
  if (count == 0) {
    return;
  }
  auto* words = reinterpret_cast<unsigned long long*>(rows);
  const dim3 row_grid(core::block_count(count, kRowThreads, 1024));
  launcher.launch(row_grid, dim3(kRowThreads), &clear_findings_kernel<kRowThreads>, words, count);
  core::for_each_table(
      plan, [&]<int kCapacity>(const core::UnitTable<kCapacity>& table, core::TablePlace place) {
        if (table.units > 0) {
          launcher.launch(dim3(pass_blocks(table.units, multiprocessors, kThreads)), dim3(kThreads),
                          &scan_units_kernel<kThreads, kCapacity>,
                          mark_complex(table, is_complex, place.first_entry),
                          words + static_cast<std::uint64_t>(place.first_entry) * kRowWords);
        }
      });
  launcher.launch(row_grid, dim3(kRowThreads), &write_findings_kernel<kRowThreads>, words, count);
}

}  // namespace ampscaler::cuda
