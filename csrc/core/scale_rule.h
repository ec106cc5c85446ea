// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The scale rule: back off after an overflow, grow after a run of clean steps. The same source
// serves the CPU operator and the CUDA kernel; its reference is aten::_amp_update_scale_
// (ATen/native/cpu/AmpGradScalerKernels.cpp), to the bit.

#include <cstdint>
#include <limits>

#include "core/finite.h"
#include "core/macros.h"

namespace ampscaler::core {

struct ScaleState {
  float scale;
  std::int32_t growth_tracker;  // clean steps since the last change of the scale
};

struct ScaleRule {
  double growth_factor;
  double backoff_factor;
  std::int64_t growth_interval;  // zero or negative: never grows
};

// The range that the scale is kept in; by default unlimited: infinity stays infinity.
struct ScaleLimits {
  float min_scale = -std::numeric_limits<float>::infinity();
  float max_scale = std::numeric_limits<float>::infinity();
};

// NaN stays NaN: every comparison with it fails.
AMPSCALER_HOST_DEVICE inline float clamp_scale(float scale, const ScaleLimits& limits) {
  if (scale < limits.min_scale) {
    return limits.min_scale;
  }
  return scale > limits.max_scale ? limits.max_scale : scale;
}

// One product in double, rounded once to float: scale * factor can differ from a product in float.
AMPSCALER_HOST_DEVICE inline float rescale(float scale, double factor) {
  return static_cast<float>(static_cast<double>(scale) * factor);
}

// The state after one step. `found_inf` counts as an overflow unless it equals zero: NaN does, -0
// does not. Growth that would leave the range of float keeps the scale and restarts the count.
// Back-off is not clamped. The interval is compared by equality, so a tracker beyond it grows no
// more until an overflow resets it; a tracker at INT32_MAX wraps around (computed unsigned, where
// wrapping is defined).
AMPSCALER_HOST_DEVICE inline ScaleState advance_scale(ScaleState state, const ScaleRule& rule,
                                                      float found_inf) {
  if (found_inf != 0.0F) {
    return {rescale(state.scale, rule.backoff_factor), 0};
  }
  const auto clean_steps =
      static_cast<std::int32_t>(static_cast<std::uint32_t>(state.growth_tracker) + 1U);
  if (static_cast<std::int64_t>(clean_steps) != rule.growth_interval) {
    return {state.scale, clean_steps};
  }
  const float grown = rescale(state.scale, rule.growth_factor);
  return {is_finite(grown) ? grown : state.scale, 0};
}

// The same with the scale kept within limits, whatever it was before. The count is the rule's own: at
// the cap it restarts as if the scale had grown.
AMPSCALER_HOST_DEVICE inline ScaleState advance_scale(ScaleState state, const ScaleRule& rule,
                                                      const ScaleLimits& limits, float found_inf) {
  const ScaleState next = advance_scale(state, rule, found_inf);
  return {clamp_scale(next.scale, limits), next.growth_tracker};
}

}  // namespace ampscaler::core
