// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What follows from the sums of a pass, by torch's operators: core::finish with tensors, where
// selections replace branches, so that nothing waits for the device.

#include <optional>

#include <ATen/core/Tensor.h>

#include "ops/signatures.h"

namespace ampscaler::ops {

/// core::GradScaling as scalars of the dtype `real`.
struct ScalingTensors {
  at::Tensor scale;
  at::Tensor divisor;
  at::Tensor user_scale;
};

/// What is not given counts as 1.
ScalingTensors make_scaling(const at::Tensor& scale, const OptionalTensor& divisor,
                            const OptionalTensor& user_scale, at::ScalarType real);

/// core::ClipRule; no limit where the tensor is not given.
struct ClipTensors {
  OptionalTensor max_norm;
  double eps;
};

ClipTensors make_clip_rule(std::optional<double> max_norm, const OptionalTensor& max_norm_tensor,
                           double eps, const at::TensorOptions& real);

/// core::is_valid_divisor, core::inverse_scale and core::norm_factor.
at::Tensor is_valid_divisor(const at::Tensor& divisor);
at::Tensor inverse_scale(const ScalingTensors& scaling);
at::Tensor norm_factor(const ScalingTensors& scaling);

/// core::finish for the words of core::GradSums.
StatsAndFactors finish_by_torch(const at::Tensor& words, double norm_type,
                                const ScalingTensors& scaling, const ClipTensors& rule);

/// `merge_stats` and `step_factors` after their checks.
StatsAndFactors conclude_merged(at::TensorList stats, double norm_type, const ClipTensors& rule);
at::Tensor conclude_step(const at::Tensor& found_inf, const ScalingTensors& scaling,
                         const at::Tensor& clip_coefficient);

}  // namespace ampscaler::ops
