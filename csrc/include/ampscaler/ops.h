// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The operators torch.ops.ampscaler.* as C++ functions. Calls go through torch's dispatcher, to the
// backend of the tensors.
//
// None waits for the device, except that coalescing a sparse CUDA gradient does. Gradients are changed
// in place without autograd noticing, as by torch's own scaler. Safe to call from several threads on
// different tensors.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

/// How stored gradients relate to the true ones, and what to clip them to:
///
///   true gradient = stored gradient / (scale * divisor * user_scale)
struct GradStatsOptions {
  /// Total weight of the accumulated micro-batches; 1 element, any real dtype. One that is not positive
  /// and finite sets the flag.
  std::optional<at::Tensor> divisor = std::nullopt;
  /// The user's own `optimizer.grad_scale`; 1 element, rounded to float32 as torch does. Gradients that
  /// are unscaled in place are not divided by it, but the norm is.
  std::optional<at::Tensor> user_scale = std::nullopt;
  /// 2, inf, or any other p >= 0: for those the result is plain double arithmetic. 0 counts tensors
  /// with an element that is not 0, like torch's clip_grad_norm_ (grad_norms() counts the elements).
  double norm_type = 2.0;
  /// Limit of the norm, > 0 or c10::ValueError; none by default. A tensor (1 element, any real dtype) is
  /// not read, so there a value that is not > 0 counts as none; it wins if both are given.
  std::optional<double> max_norm = std::nullopt;
  std::optional<at::Tensor> max_norm_tensor = std::nullopt;
  /// Added to the norm where clipping divides by it; torch's clip_grad_norm_ has 1e-6. >= 0.
  double eps = 0.0;
  /// Sums of earlier calls: contiguous int64 [141], the words of core::GradSums, zeros at first. The
  /// call adds its own sums, and its results are those of all gradients so far. Two such states merge
  /// by addition of the words, the last one by maximum.
  std::optional<at::Tensor> accumulate = std::nullopt;
};

/// What a pass has found: vectors on the device of `scale`, with the slots that stats_names() and
/// factor_names() list (in Python: ampscaler.ops.STATS and ampscaler.ops.FACTORS).
struct GradStats {
  /// float64 (float32 where a device has no other): norm and max_abs of the true gradients; counts of
  /// stored values: zeros, underflows, elements, infs, nans, overflows; clip_coefficient.
  at::Tensor stats;
  /// float32: found_inf (0 or 1), norm, clip_coefficient, unscale_and_clip to multiply scaled
  /// gradients by, grad_scale for a fused optimizer to divide them by.
  at::Tensor factors;
};

/// The slots of GradStats in their order: "norm", "max_abs", ... and "found_inf", "norm", ...
AMPSCALER_API std::vector<std::string> stats_names();
AMPSCALER_API std::vector<std::string> factor_names();

/// Reads the gradients once and writes nothing: are they finite, what is their norm, by what would they
/// be clipped.
///
/// - `grads`: tensors of one device: float16, bfloat16, float32, float64 and complex ones in one list
///   (complex counts as pairs of reals), any strides, sparse COO (statistics of the coalesced values),
///   0 elements allowed. Gradients that share memory with one another are c10::ValueError.
/// - `scale`: float32, 1 element, same device.
/// - The 2-norm: sums within 16 KiB are rounded (relative error of the norm below 2^-20 for 16 bits,
///   2^-22 for float32 on CUDA, else 2^-23) and then added exactly. So our kernels give the same bits
///   for any number of threads or blocks, order of the list and splitting of it into accumulating calls;
///   torch's own, on other devices, do not promise it. The CPU and CUDA may differ in the last bits.
/// - The sum cannot overflow; a norm beyond double (as float32: beyond float32) reads inf.
/// - Throws before anything has changed: c10::ValueError also for numbers out of range,
///   c10::NotImplementedError for other dtypes and layouts, c10::Error for scalars and devices.
/// - docs/one_pass.md has all clauses.
AMPSCALER_API GradStats grad_stats(at::TensorList grads, const at::Tensor& scale,
                                   const GradStatsOptions& options = {});

/// The same in one pass with unscaling in place: every gradient is multiplied by
/// float(1 / (scale * divisor)), rounded once to its dtype. An overflow by that sets the flag too, and
/// non-finite values are multiplied like others. Bumps the versions of the gradients.
AMPSCALER_API GradStats unscale_with_stats_(at::TensorList grads, const at::Tensor& scale,
                                            const GradStatsOptions& options = {});

/// Unscales in place and clamps to [-clip_value, clip_value] in the same pass; NaN stays. `clip_value`
/// must be >= 0 (c10::ValueError). Bumps versions.
AMPSCALER_API GradStats unscale_clamp_(at::TensorList grads, const at::Tensor& scale,
                                       double clip_value,
                                       const std::optional<at::Tensor>& divisor = {},
                                       const std::optional<at::Tensor>& user_scale = {});

/// Multiplies every gradient by `factor` in place, unless `factor` is 1 or `found_inf` is set: then
/// values stay, and our kernels touch nothing. Both are float32 with 1 element on the gradients' device.
/// Bumps versions, since the host cannot know whether it was written.
AMPSCALER_API void scale_grads_(at::TensorList grads, const at::Tensor& factor,
                                const at::Tensor& found_inf);

/// Where the first inf or NaN of each gradient is: int64 [n, 3] on the gradients' device, with the index
/// of the element in row-major order or -1, its kind (0 none, 1 inf, 2 NaN), and how many there are.
/// Sparse: index among the coalesced values. The CPU for an empty list.
AMPSCALER_API at::Tensor find_nonfinite(at::TensorList grads);

/// The norm of each true gradient: float32 [n]. With a `norm_type` of 0 the number of its elements that
/// are not 0, where GradStatsOptions::norm_type counts tensors.
AMPSCALER_API at::Tensor grad_norms(at::TensorList grads, const at::Tensor& scale,
                                    double norm_type = 2.0);

/// Combines the `stats` of several lists (of one device; at least one) as if they had been one: norm by
/// the rule of `norm_type`, largest magnitude, counts, a new coefficient. Of `factors`, found_inf, norm
/// and clip_coefficient are meaningful, the others are 1. Only `norm_type`, limit and eps of `options` are
/// looked at.
///
/// The flag follows from counts and norm (one beyond double sets it). A scaling that was not usable shows
/// in neither, so the caller must combine the flags of the lists with it, by maximum.
AMPSCALER_API GradStats merge_stats(at::TensorList stats, const GradStatsOptions& options = {});

/// The two scalars that a fused optimizer gets for its step, as a float32 vector {found_inf, grad_scale}:
/// grad_scale = user_scale * scale * divisor / clip_coefficient in double, rounded once; what is not
/// given counts as 1. found_inf is exactly 0 or 1: set if the given one is not 0 (NaN included) or a
/// factor is not usable, and then grad_scale is finite all the same.
AMPSCALER_API at::Tensor step_factors(const at::Tensor& found_inf,
                                      const std::optional<at::Tensor>& scale,
                                      const std::optional<at::Tensor>& divisor = {},
                                      const std::optional<at::Tensor>& user_scale = {},
                                      const std::optional<at::Tensor>& clip_coefficient = {});

/// True if this build has a kernel of `unscale_` for plain tensors of that device type.
AMPSCALER_API bool has_unscale_kernel(c10::DeviceType device_type);

/// The loops in use on the CPU: "baseline", "avx2" or "avx512", the widest that the machine has, or those
/// that AMPSCALER_CPU_ISA names. std::invalid_argument, here and from the first operator, if it names
/// others than the machine has.
AMPSCALER_API std::string cpu_kernels();

/// Does nothing; a reference to it keeps the linker from dropping the library from a program that
/// only uses the operators.
AMPSCALER_API bool ensure_registered();

}  // namespace ampscaler::ops
