// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The chain of one mixed-precision step as functions without state. A gradient that is missing is
// an undefined tensor. Safe to call from several threads.

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ampscaler/export.h"

namespace ampscaler::functional {

/// New tensors with the values of `gradient / scale`; undefined ones stay undefined. Does not wait.
/// Throws c10::ValueError unless `scale` is positive and finite.
AMPSCALER_API std::vector<at::Tensor> unscale_gradients(const std::vector<at::Tensor>& scaled,
                                                        double scale);
/// The same with a scale on the device (one element), which is then not checked.
AMPSCALER_API std::vector<at::Tensor> unscale_gradients(const std::vector<at::Tensor>& scaled,
                                                        const at::Tensor& scale);

/// The 2-norm over all elements of all gradients: a 0-dim float32 tensor on the device of the
/// first, accumulated in float64. Undefined gradients count nothing; 0 on the CPU for an empty
/// list. Does not wait.
AMPSCALER_API at::Tensor global_grad_norm(const std::vector<at::Tensor>& gradients);

struct ClippedGradients {
  std::vector<at::Tensor> gradients;
  at::Tensor grad_norm;         // 0-dim float32, of the unscaled gradients before clipping
  at::Tensor clip_coefficient;  // 0-dim float32
  at::Tensor found_inf;         // 0-dim float32, exactly 0 or 1
};

/// Unscales and clips without a wait, differentiably: new gradients `gradient / scale * clip_coefficient`,
/// undefined ones stay undefined. The coefficient is 1 if the norm is at most `max_norm`, else
/// max_norm / (norm + eps).
///
/// A gradient that is not finite after unscaling sets the flag and leaves the coefficient 1; so does a
/// scale that is not finite, and a coefficient too small for float32. `norm_type` is 2, inf or another
/// p >= 0. `scale` has one element and is not checked. Throws c10::ValueError unless `max_norm` > 0,
/// `norm_type` >= 0 and `eps` >= 0.
AMPSCALER_API ClippedGradients unscale_and_clip(const std::vector<at::Tensor>& scaled,
                                                const at::Tensor& scale, double max_norm,
                                                double norm_type = 2.0, double eps = 0.0);

struct MixedPrecisionPlan {
  std::vector<at::Tensor> gradients;  // unscaled, and clipped if they are finite
  at::Tensor grad_norm;               // before clipping; inf beyond float32
  double clip_coefficient;  // min(1, max_norm / (norm + 1e-12)); 0 when a gradient is not finite
  bool should_step;
  double next_scale;   // the given scale, times backoff_factor when a gradient is not finite
  std::string reason;  // "finite_gradient" or "non_finite_gradient"
};

/// What to do with scaled gradients: step with clipped ones, or skip and back off. Waits for the
/// device. Throws c10::ValueError unless `scale` and `max_norm` are positive (and the scale finite)
/// and backoff_factor is in (0, 1).
AMPSCALER_API MixedPrecisionPlan plan_mixed_precision_update(const std::vector<at::Tensor>& scaled,
                                                             double scale, double max_norm,
                                                             double backoff_factor = 0.5);

}  // namespace ampscaler::functional
