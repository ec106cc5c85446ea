// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What the kernels of `step_factors` and `merge_stats` get, as the host writes it down: addresses of scalars
// and of short vectors, so that a captured graph reads at each replay what is there then.

#include <cstdint>

#include "core/data_type.h"
#include "core/grad_stats.h"
#include "core/macros.h"

namespace ampscaler::cuda {

/// A tensor with one element; null where an argument is not given.
struct DeviceScalar {
  const void* address = nullptr;
  core::DataType dtype = core::kFloat32;
};

struct StepArguments {
  const float* found_inf = nullptr;
  DeviceScalar scale;  // 1 where they are not given
  DeviceScalar divisor;
  DeviceScalar user_scale;
  DeviceScalar clip_coefficient;
  float* scalars = nullptr;  // core::kStepScalars
};

/// Vectors that the kernel reads where they lie: 2 KB of arguments. More of them are copied together.
inline constexpr int kMostStatsVectors = 120;

/// `stats` vectors, each with a stride of its own.
struct StatsVectors {
  struct Vector {
    const double* values;
    std::int64_t stride;
  };
  Vector vectors[kMostStatsVectors];

  AMPSCALER_HOST_DEVICE double operator()(std::int64_t part, int slot) const {
    return vectors[part].values[slot * vectors[part].stride];
  }
};

struct MergeArguments {
  std::int64_t parts = 0;
  double norm_type = 2.0;
  DeviceScalar max_norm;
  double limit = 0.0;  // of the norm, where `max_norm` is not given
  double eps = 0.0;
  double* stats = nullptr;   // core::kStatsSlots
  float* factors = nullptr;  // core::kFactorSlots
};

}  // namespace ampscaler::cuda
