// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// How many blocks a pass is launched with: all that the GPU can hold at once, or fewer for a small list, in
// which each warp then has one unit.

#include "core/unit_table.h"

namespace ampscaler::cuda {

inline constexpr int kPassThreads = 512;

/// So many blocks of a pass fit a multiprocessor, which bounds the registers of a thread to 64.
inline constexpr int kBlocksPerMultiprocessor = 2;

/// `threads` is not kPassThreads in tests only.
inline unsigned pass_blocks(std::uint32_t units, int multiprocessors, int threads = kPassThreads) {
  return core::block_count(units, static_cast<std::uint32_t>(threads / 32),
                           static_cast<std::uint32_t>(kBlocksPerMultiprocessor * multiprocessors));
}

}  // namespace ampscaler::cuda
