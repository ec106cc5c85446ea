// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What a pass gets beside the gradients, as the host writes it down and the kernel reads it. Numbers that
// may change between replays of a captured graph come as addresses of tensors with one element.

#include <cstdint>

#include "core/data_type.h"
#include "core/grad_stats.h"

namespace ampscaler::cuda {

/// Sums on their way from the blocks of a launch, or of several, to the one that draws the conclusions.
/// Zeros before and after each call; one per stream, since calls on two streams would mix.
struct Workspace {
  core::GradSums sums;
  unsigned int finished_blocks;
};

enum class PassMode : std::uint8_t {
  kFinish,   // the last block writes the results
  kCollect,  // a later launch of the same call does
};

/// In the order of `dtypes`.
enum ScalarArgument : std::uint8_t { kDivisor, kUserScale, kMaxNorm, kScalarArguments };

/// All addresses are on the device of the gradients, or null where an argument is not given.
struct PassArguments {
  const float* scale = nullptr;
  const void* scalars[kScalarArguments] = {};  // 1, 1 and `limit` where there is none
  core::DataType dtypes[kScalarArguments] = {};
  PassMode mode = PassMode::kFinish;  // set by the launch function
  double limit = 0.0;                 // of the norm; of the values for the pass that clamps
  double eps = 0.0;
  double norm_type = 2.0;
  std::int64_t elements = 0;  // of the whole call; set by the launch function
  Workspace* workspace = nullptr;
  core::GradSums* accumulate = nullptr;
  double* stats = nullptr;   // core::kStatsSlots
  float* factors = nullptr;  // core::kFactorSlots
};

}  // namespace ampscaler::cuda
