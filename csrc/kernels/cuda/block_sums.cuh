// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// From the sums of units to the results: every block adds its units in shared memory, then adds that to
// the workspace, and the block that does so last writes the results and leaves the workspace as it was.
// All additions are of integers, so neither their order nor the grid changes a bit.

#include "core/grad_stats.h"
#include "core/ranges.h"
#include "kernels/cuda/pass_arguments.h"
#include "kernels/cuda/scalars.cuh"
#include "kernels/cuda/unit_loop.cuh"
#include "kernels/cuda/unit_sums.cuh"

namespace ampscaler::cuda {

// ---- words of sums ----

using Word = unsigned long long;  // the type of CUDA's atomics

__device__ inline Word* words_of(core::GradSums& sums) { return reinterpret_cast<Word*>(&sums); }

inline constexpr int kMaxWord = core::kGradSumsWords - 1;  // merges by its maximum

template <int kThreads>
__device__ void clear(core::GradSums& sums) {
  for (int k = static_cast<int>(threadIdx.x); k < core::kGradSumsWords; k += kThreads) {
    words_of(sums)[k] = 0;
  }
}

// Most words of most sums are 0.
__device__ inline void add_word(Word* word, Word value) {
  if (value != 0) {
    atomicAdd(word, value);
  }
}

__device__ inline void add_count(std::int64_t& total, std::uint32_t count) {
  add_word(reinterpret_cast<Word*>(&total), count);
}

__device__ inline void add_exactly(core::GradSums& sums, double value, int shift = 0) {
  if (value != 0.0) {
    const core::ExactTerm term = core::exact_term(value, shift);
    Word* limbs = words_of(sums);
    add_word(limbs + term.limb, term.words[0]);
    add_word(limbs + term.limb + 1, term.words[1]);
    add_word(limbs + term.limb + 2, term.words[2]);
  }
}

__device__ inline void add_squares(core::GradSums& sums, const UnitSums& unit) {
  add_exactly(sums, unit.sum);
  add_exactly(sums, unit.sum_high, core::kHighShift);
  add_exactly(sums, unit.sum_low, core::kLowShift);
}

// All but the norm's terms.
__device__ inline void add_counts(core::GradSums& sums, const UnitSums& unit) {
  add_count(sums.zeros, unit.zeros);
  add_count(sums.underflows, unit.below - unit.zeros);
  add_count(sums.infs, unit.infs);
  add_count(sums.nans, unit.nans);
  add_count(sums.overflows, unit.overflows);
  atomicMax(reinterpret_cast<Word*>(&sums.max_abs_bits),
            static_cast<Word>(__double_as_longlong(unit.max_abs)));
}

// ---- arguments ----

__device__ inline DeviceScalar scalar_of(const PassArguments& arguments, ScalarArgument which) {
  return {arguments.scalars[which], arguments.dtypes[which]};
}

__device__ inline core::GradScaling scaling_of(const PassArguments& arguments) {
  return grad_scaling(static_cast<double>(*arguments.scale), scalar_of(arguments, kDivisor),
                      scalar_of(arguments, kUserScale));
}

// ---- results ----

template <int kThreads>
__device__ void add_to_workspace(core::GradSums& block, Workspace* workspace) {
  Word* to = words_of(workspace->sums);
  const Word* from = words_of(block);
  for (int k = static_cast<int>(threadIdx.x); k < core::kGradSumsWords; k += kThreads) {
    if (k != kMaxWord) {
      add_word(to + k, from[k]);
    } else if (from[k] != 0) {
      atomicMax(to + k, from[k]);
    }
  }
}

// Whether all other blocks have added their sums. The barrier before the fence makes the fence one for
// what the whole block has added; the counter is 0 again after the last block.
__device__ inline bool is_last_block(Workspace* workspace) {
  AMPSCALER_SHARED(unsigned, is_last);
  __syncthreads();  // the whole block has added its sums
  if (threadIdx.x == 0) {
    __threadfence();  // before it is counted
    is_last = atomicInc(&workspace->finished_blocks, gridDim.x - 1) == gridDim.x - 1 ? 1U : 0U;
    __threadfence();  // what others added is seen from here on
  }
  __syncthreads();  // is_last is written
  return is_last != 0;
}

// Takes the sums out of the workspace, which is left with zeros, and adds those of earlier calls.
template <int kThreads>
__device__ void take_sums(const PassArguments& arguments, core::GradSums& sums) {
  Word* from = words_of(arguments.workspace->sums);
  Word* to = words_of(sums);
  for (int k = static_cast<int>(threadIdx.x); k < core::kGradSumsWords; k += kThreads) {
    Word value = __ldcg(from + k);
    from[k] = 0;
    if (arguments.accumulate != nullptr) {
      const Word earlier = words_of(*arguments.accumulate)[k];
      value = k != kMaxWord ? value + earlier : value < earlier ? earlier : value;
    }
    to[k] = value;
  }
}

// What every pass ends with, after the last unit. `block` is in shared memory.
template <int kThreads>
__device__ void publish(const PassArguments& arguments, core::GradSums& block, double max_norm) {
  __syncthreads();  // all warps have added their units
  add_to_workspace<kThreads>(block, arguments.workspace);
  if (arguments.mode == PassMode::kCollect || !is_last_block(arguments.workspace)) {
    return;
  }
  take_sums<kThreads>(arguments, block);
  __syncthreads();  // all words are there
  if (threadIdx.x == 0) {
    block.elements += arguments.elements;
    const core::ClipRule rule = {max_norm, arguments.eps};
    core::finish(block, arguments.norm_type, scaling_of(arguments), rule, arguments.stats,
                 arguments.factors);
  }
  if (arguments.accumulate != nullptr) {
    __syncthreads();  // the limbs are normalised
    for (int k = static_cast<int>(threadIdx.x); k < core::kGradSumsWords; k += kThreads) {
      words_of(*arguments.accumulate)[k] = words_of(block)[k];
    }
  }
}

}  // namespace ampscaler::cuda
