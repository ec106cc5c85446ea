// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The launches of `unscale_` for one dtype, over any launcher: the CUDA runtime in unscale.cu, the
// SIMT harness in tests.

#include <algorithm>
#include <vector>

#include "kernels/cuda/unscale_kernels.cuh"

namespace ampscaler::cuda {

/// Enough blocks to fill any GPU of today; each then takes several chunks.
inline constexpr std::int64_t kUnscaleMaxBlocks = 2048;

template <typename T, typename Launcher>
void unscale_table(Launcher& launcher, const core::TensorTable& table, const float* inv_scale,
                   float* found_inf) {
  const std::int64_t chunks = core::chunk_count(table);
  if (chunks > 0) {
    const auto blocks = static_cast<unsigned int>(std::min(chunks, kUnscaleMaxBlocks));
    launcher.launch(dim3(blocks), dim3(kUnscaleThreads), &unscale_kernel<T>, table, chunks,
                    inv_scale, found_inf);
  }
}

/// One launch per 110 tensors; empty tensors take no place.
template <typename T, typename Launcher>
void unscale_tensors(Launcher& launcher, const std::vector<core::FlatTensor>& tensors,
                     const float* inv_scale, float* found_inf) {
  core::TensorTable table{};
  for (const core::FlatTensor& tensor : tensors) {
    if (tensor.size > 0) {
      core::append(table, tensor);
    }
    if (core::is_full(table)) {
      unscale_table<T>(launcher, table, inv_scale, found_inf);
      table = {};
    }
  }
  unscale_table<T>(launcher, table, inv_scale, found_inf);
}

}  // namespace ampscaler::cuda
