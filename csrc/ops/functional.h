// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The stateless operators as plain functions over existing gradients. They are compositions of
// torch's own operators: dense gradients are differentiable, torch.compile sees through, and every
// device works without further code.

#include <optional>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ampscaler::ops {

std::vector<at::Tensor> unscale_gradients_tensor(at::TensorList scaled, const at::Tensor& scale);
std::vector<at::Tensor> unscale_gradients_scalar(at::TensorList scaled, double scale);
at::Tensor global_grad_norm(at::TensorList gradients);
/// Before the rounding to float32: finite whenever all gradients are.
at::Tensor global_grad_norm_in_double(at::TensorList gradients);

/// Gradients, their norm before clipping, coefficient and flag: see ampscaler::functional.
using UnscaledAndClipped = std::tuple<std::vector<at::Tensor>, at::Tensor, at::Tensor, at::Tensor>;
/// A `max_norm_tensor` wins over `max_norm` and is not checked.
UnscaledAndClipped unscale_and_clip(at::TensorList scaled, const at::Tensor& scale, double max_norm,
                                    const std::optional<at::Tensor>& max_norm_tensor,
                                    double norm_type, double eps);

/// c10::ValueError unless `scale` is positive and finite.
void check_positive_scale(double scale);

}  // namespace ampscaler::ops
