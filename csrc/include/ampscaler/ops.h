// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The operators torch.ops.ampscaler.* as C++ functions. Calls go through torch's dispatcher, to the
// backend of the tensors.
//
// None waits for the device. Gradients are changed in place without autograd noticing, as by
// torch's own scaler. Safe to call from several threads on different tensors.

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ampscaler/export.h"
#include "ampscaler/scale_policy.h"

namespace ampscaler::ops {

/// Multiplies every gradient by `inv_scale` in place, and sets `found_inf` to 1 if an input element
/// is inf or NaN.
///
/// Bit for bit `aten::_amp_foreach_non_finite_check_and_unscale_`, its errors included; on CUDA also
/// for bfloat16, which aten refuses, and without aten's repeated products where elements overlap. The
/// payload of a NaN is not specified. The scalars must not alias a gradient or each other.
/// - `grads`: any number of tensors of one device: float16, bfloat16, float32 and float64 in one
///   list, any strides without repeated elements, 0 elements allowed. An empty list returns before
///   any check.
/// - `found_inf`: float32, 1 element, same device; never cleared.
/// - `inv_scale`: float32, 1 element, same device.
/// - Products are formed in float32 (float64 for float64 gradients) and rounded once. An overflow
///   that the product causes is not flagged.
/// - Version counters stay, of the gradients and of `found_inf`.
/// - Throws before any change when a scalar is wrong. When gradient k is, those before k have been
///   multiplied on CPU, and none on CUDA.
AMPSCALER_API void unscale_(at::TensorList grads, const at::Tensor& found_inf,
                            const at::Tensor& inv_scale);

/// Moves `scale` and `growth_tracker` on by one step, in place: the rule of core/scale_rule.h.
///
/// Bit for bit `aten::_amp_update_scale_`, but returns nothing. The version of `scale` is bumped,
/// so that a late backward fails instead of using the new scale; that of the tracker is not.
/// - `scale`, `found_inf`: float32, 1 element. `growth_tracker`: int32, 1 element. One device.
/// - Throws like aten, before any change, when a size or dtype is wrong.
/// - On devices that this build has no kernel for, torch's own operator does the work.
AMPSCALER_API void update_scale_(const at::Tensor& scale, const at::Tensor& growth_tracker,
                                 const at::Tensor& found_inf, double growth_factor,
                                 double backoff_factor, std::int64_t growth_interval);

/// The same under a policy: the scale also stays within the limits of `policy`, whatever it was
/// before. With the default policy bit for bit update_scale_().
///
/// torch.ops.ampscaler.advance_scale_ takes factors, interval and limits as one list of five
/// numbers: growth_factor, backoff_factor, growth_interval, min_scale, max_scale (-inf and inf where
/// there is no limit). Its arguments have the types of update_scale_().
AMPSCALER_API void advance_scale_(const at::Tensor& scale, const at::Tensor& growth_tracker,
                                  const at::Tensor& found_inf, double growth_factor,
                                  double backoff_factor, std::int64_t growth_interval,
                                  const ScalePolicy& policy);

/// True if this build has a kernel of `unscale_` for plain tensors of that device type.
AMPSCALER_API bool has_unscale_kernel(c10::DeviceType device_type);

/// Does nothing; a reference to it keeps the linker from dropping the library from a program that
/// only uses the operators.
AMPSCALER_API bool ensure_registered();

}  // namespace ampscaler::ops
