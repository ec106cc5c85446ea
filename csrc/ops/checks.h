// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Argument checks of every operator: each backend calls these first. Order and texts are those of
// the aten operators that ours stand in for, so code that matches on torch's messages keeps
// working.

#include <ATen/core/Tensor.h>

namespace ampscaler::ops {

/// The scalar arguments of `unscale_`: sizes, then dtypes.
void check_unscale_scalars(const at::Tensor& found_inf, const at::Tensor& inv_scale);

/// The same for the Meta kernel, where aten asks in another order and takes any floating dtype.
void check_unscale_scalars_on_meta(const at::Tensor& found_inf, const at::Tensor& inv_scale);

/// One gradient of `unscale_`, right before it is written: floating dtype, no element that stands
/// for several. `backend` is "cpu" or "cuda", as in aten's message.
void check_unscale_gradient(const at::Tensor& grad, const char* backend);

/// For callers that check a whole list before anything is written: everything that would make
/// `unscale_`, ours or aten's, refuse `grad`, layouts included.
void check_unscalable(const at::Tensor& grad);

/// All arguments of `update_scale_`.
void check_update_scale(const at::Tensor& scale, const at::Tensor& growth_tracker,
                        const at::Tensor& found_inf);

/// All arguments of `advance_scale_`: those of `update_scale_`, then c10::ValueError for a list
/// `policy` that core/policy.h does not accept.
void check_advance_scale(const at::Tensor& scale, const at::Tensor& growth_tracker,
                         const at::Tensor& found_inf, at::ArrayRef<double> policy);

/// Only the list, for the Meta kernel.
void check_policy(at::ArrayRef<double> policy);

/// For the Meta kernel: a scale with a value cannot be updated by what has none.
void check_update_scale_on_meta(const at::Tensor& scale);

/// `tensor` must be where `reference` is. For backends of devices that come in several, and that
/// the dispatcher also calls for a mixture of their tensors and CPU tensors; a CPU backend only
/// ever sees CPU tensors.
void check_same_device(const char* operation, const char* argument, const at::Tensor& tensor,
                       const at::Tensor& reference);

}  // namespace ampscaler::ops
