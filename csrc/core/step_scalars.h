// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The two scalars that a fused optimizer is stepped with, formed when it is: scale and coefficient may
// come from different calls, and the user may have set a grad_scale of his own in between.

#include <cstdint>

#include "core/clip.h"
#include "core/macros.h"

namespace ampscaler::core {

/// Slots of the float32 vector that `step_factors` returns.
enum StepScalar : std::uint8_t { kStepFoundInf, kStepGradScale, kStepScalars };

/// The flag is exactly 0 or 1, as fused optimizers test for 1: set by any `found_inf` but 0, and where
/// `grad_scale` or a part of it is not usable. `grad_scale` is finite and not 0 even then.
AMPSCALER_HOST_DEVICE inline void step_scalars(float found_inf, const GradScaling& scaling,
                                               double clip_coefficient, float* scalars) {
  const float clipped = effective_grad_scale(scaling, clip_coefficient);
  const bool usable = is_usable(scaling) && clip_coefficient > 0.0 &&
                      is_usable(static_cast<float>(clip_coefficient)) && is_usable(clipped);
  const bool skip = found_inf != 0.0F || !usable;
  const float unclipped = effective_grad_scale(scaling, 1.0);
  scalars[kStepFoundInf] = skip ? 1.0F : 0.0F;
  scalars[kStepGradScale] = !skip ? clipped : is_usable(unclipped) ? unclipped : 1.0F;
}

}  // namespace ampscaler::core
