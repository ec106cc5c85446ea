// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// AmpScaler keeps low-precision gradients representable: it multiplies the loss, divides the
// gradients and adapts the factor.
//
// Per optimizer, within one iteration (step also accepts READY, and unscales first):
//   READY --unscale_, clip--> UNSCALED --step--> STEPPED --update--> READY
//     ^-clip-'  (AmpAware optimizers only, which apply scale and clip themselves)
//
// Waiting:  only where a comment says "waits", and where a sparse CUDA gradient is coalesced.
// Streams:  the caller's current stream.
// Threads:  one thread at a time. unscale_, step and update refuse a second one while they run.
// Moving:   a scaler that was moved from throws until it is assigned to.
// Errors:   c10::Error and its subclasses (errors.h), with the texts of torch.amp.GradScaler.
//           After one, nothing has changed; but if an optimizer throws in step, its gradients
//           stay divided, and step may be called again.
// Disabled: scale, unscale_ and update do nothing, step runs the optimizer, state_dict is empty.
//           Clips and queries take gradients as they are.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "ampscaler/export.h"
#include "ampscaler/fp16_grads.h"
#include "ampscaler/optimizer_adapter.h"
#include "ampscaler/scale_policy.h"
#include "ampscaler/step_result.h"

namespace torch::optim {
class Optimizer;
}

namespace ampscaler {

/// How to build an AmpScaler:
/// `AmpScalerOptions(torch::kCPU).init_scale(1024).growth_interval(100)`.
///
/// A value out of range throws: c10::ValueError, or AssertionError with torch's text where torch
/// has one.
class AMPSCALER_API AmpScalerOptions {
 public:
  /// `device` is where the losses are. CUDA on a machine without it warns and gives a disabled
  /// scaler, as in torch.
  explicit AmpScalerOptions(c10::Device device = c10::Device(c10::kCUDA)) : device_(device) {}

  /// First scale; a positive finite float32 value.
  AmpScalerOptions& init_scale(double value);
  /// Factor after `growth_interval` clean steps in a row; finite, > 1.
  AmpScalerOptions& growth_factor(double value);
  /// Factor after an overflow; in (0, 1).
  AmpScalerOptions& backoff_factor(double value);
  /// Clean steps in a row before the scale grows; >= 1.
  AmpScalerOptions& growth_interval(std::int64_t value);
  AmpScalerOptions& enabled(bool value);
  /// What goes beyond torch's rule; init_scale is clamped to its limits when a scaler is built.
  AmpScalerOptions& policy(const ScalePolicy& value);
  /// Without effect on the step of an AmpAware optimizer, which may always have float16 gradients.
  AmpScalerOptions& fp16_grads(Fp16Grads value);

  c10::Device device() const { return device_; }
  double init_scale() const { return init_scale_; }
  double growth_factor() const { return growth_factor_; }
  double backoff_factor() const { return backoff_factor_; }
  std::int64_t growth_interval() const { return growth_interval_; }
  bool enabled() const { return enabled_; }
  const ScalePolicy& policy() const { return policy_; }
  Fp16Grads fp16_grads() const { return fp16_grads_; }

 private:
  friend class AmpScaler;  // a loaded scale may be any float32, unlike a first one

  c10::Device device_;
  double init_scale_ = 65536.0;
  double growth_factor_ = 2.0;
  double backoff_factor_ = 0.5;
  std::int64_t growth_interval_ = 2000;
  bool enabled_ = true;
  ScalePolicy policy_;
  Fp16Grads fp16_grads_ = Fp16Grads::kError;
};

/// The largest norm that clip_grad_norm_ leaves alone: a number, or a tensor with 1 element of a real
/// dtype that is not read, so that nothing waits for it.
class MaxNorm {
 public:
  MaxNorm(double value) : value_(value) {}                    // NOLINT: meant to be implicit
  MaxNorm(at::Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT

  const std::optional<double>& value() const { return value_; }
  const std::optional<at::Tensor>& tensor() const { return tensor_; }

 private:
  std::optional<double> value_;
  std::optional<at::Tensor> tensor_;
};

class AMPSCALER_API AmpScaler {
 public:
  explicit AmpScaler(const AmpScalerOptions& options = AmpScalerOptions());
  ~AmpScaler();
  AmpScaler(AmpScaler&& other) noexcept;
  AmpScaler& operator=(AmpScaler&& other) noexcept;
  AmpScaler(const AmpScaler&) = delete;
  AmpScaler& operator=(const AmpScaler&) = delete;

  /// A scaler whose scale is 1 and stays so, whatever is loaded or set: for bfloat16 and float32, where
  /// nothing needs scaling but overflows must still be found. It checks, clips, skips and counts.
  static AmpScaler check_only(c10::Device device = c10::Device(c10::kCUDA));

  /// `outputs` times the scale, differentiable, any shape and dtype that multiplies with a float32
  /// scalar. The first call creates the scale on the device of `outputs`. Call backward() before
  /// update(): the product keeps the scale tensor for it.
  at::Tensor scale(const at::Tensor& outputs);
  /// The same for several tensors, on any devices. Their backward passes may run after update().
  std::vector<at::Tensor> scale(at::TensorList outputs);

  /// The factor that scale() multiplies by, on `device`: for outputs that must do the
  /// multiplication themselves. The first call creates the scale on `device`. Undefined when
  /// disabled. Do not write to it.
  at::Tensor scale_on(c10::Device device);

  /// Divides the gradients of `optimizer` by the scale in place and notes whether one holds inf or
  /// NaN. Needed only to look at or change true gradients before step. A parameter or gradient that
  /// occurs twice is divided once.
  ///
  /// Throws AssertionError before the first scale(), c10::Error if called twice or after step(),
  /// c10::ValueError for float16 gradients (their parameters should be float32; see
  /// AmpScalerOptions::fp16_grads), c10::NotImplementedError for other dtypes than floating ones.
  ///
  /// Also notes a gradient that becomes inf by the division, and a scale or divisor that cannot be
  /// divided by, so that the step is skipped; of sparse, strided and subclass gradients only what torch's
  /// operator sees. Version counters stay.
  void unscale_(torch::optim::Optimizer& optimizer);
  void unscale_(OptimizerAdapter& optimizer);

  /// Clips the true gradients of one optimizer, or of several together, to `max_norm`, and returns
  /// their norm before that: 0-dim float32 on the device of the scale. Instead of unscale_ and
  /// torch's clip_grad_norm_; the CPU kernels read the gradients once for it. Does not wait.
  ///
  ///   coefficient = norm <= max_norm ? 1 : max_norm / (norm + eps)
  ///
  /// - An ordinary optimizer is unscaled by it if it was not, and its gradients are clipped in place.
  /// - The gradients of an AmpAware one stay as they are: step hands it the coefficient with the scale.
  ///   (Where that is not certain to work, see OptimizerAdapter::folds_clip, the coefficient is
  ///   multiplied into the gradients, which stay scaled.)
  /// - If a gradient of any of them is inf or NaN, so is the norm, nothing is clipped, and all of
  ///   them will skip their step: the finite ones must not run unclipped.
  /// - A further clip sees clipped gradients. Optimizers without gradients are left as they are; if
  ///   there are none at all the norm is 0.
  ///
  /// `max_norm` must be > 0, infinity clips nothing; a tensor is not looked at, so what is not > 0 in it
  /// counts as infinity. `norm_type` >= 0: see ops::GradStatsOptions, and ops::grad_stats for how exact
  /// the 2-norm is.
  /// `eps` >= 0; 1e-6 is torch's.
  ///
  /// Throws AssertionError before the first scale(), c10::Error after step(), c10::ValueError for
  /// arguments out of range, an optimizer or gradient that occurs in two of them, and float16
  /// gradients (see AmpScalerOptions::fp16_grads), c10::NotImplementedError for tensor subclasses.
  at::Tensor clip_grad_norm_(torch::optim::Optimizer& optimizer, const MaxNorm& max_norm,
                             double norm_type = 2.0, double eps = 0.0);
  at::Tensor clip_grad_norm_(OptimizerAdapter& optimizer, const MaxNorm& max_norm,
                             double norm_type = 2.0, double eps = 0.0);
  using Optimizers = std::vector<std::reference_wrapper<torch::optim::Optimizer>>;
  using OptimizerAdapters = std::vector<std::reference_wrapper<OptimizerAdapter>>;
  at::Tensor clip_grad_norm_(const Optimizers& optimizers, const MaxNorm& max_norm,
                             double norm_type = 2.0, double eps = 0.0);
  at::Tensor clip_grad_norm_(const OptimizerAdapters& optimizers, const MaxNorm& max_norm,
                             double norm_type = 2.0, double eps = 0.0);

  /// Unscales the gradients, if that was not done, and clamps them to [-clip_value, clip_value] in the
  /// same pass; NaN stays. Also those of an AmpAware optimizer are written: its own factor
  /// (OptimizerAdapter::user_grad_scale) is not taken into account. Throws like clip_grad_norm_, and
  /// for float16 gradients as unscale_; `clip_value` must be >= 0. Does not wait.
  void clip_grad_value_(torch::optim::Optimizer& optimizer, double clip_value);
  void clip_grad_value_(OptimizerAdapter& optimizer, double clip_value);

  /// The norm of the true gradients as the optimizer will apply, or has applied them; 0-dim float32 on
  /// the device of the scale. Reads and leaves no trace. Does not wait. Arguments and errors as for
  /// clip_grad_norm_, but allowed after step too, and for float16 gradients.
  at::Tensor grad_norm(torch::optim::Optimizer& optimizer, double norm_type = 2.0) const;
  at::Tensor grad_norm(OptimizerAdapter& optimizer, double norm_type = 2.0) const;
  at::Tensor grad_norm(const Optimizers& optimizers, double norm_type = 2.0) const;
  at::Tensor grad_norm(const OptimizerAdapters& optimizers, double norm_type = 2.0) const;

  /// Whether a step will be applied, or was, as far as gradients decide: a 0-dim bool tensor on the
  /// device of the scale. What the last check of this iteration found (after a joint clip: of all that
  /// took part), or else what a read finds now, which leaves no trace. Does not wait. Throws
  /// AssertionError before the first scale(), c10::NotImplementedError for tensor subclasses.
  at::Tensor is_finite(torch::optim::Optimizer& optimizer) const;
  at::Tensor is_finite(OptimizerAdapter& optimizer) const;

  /// Whether the optimizer's gradients are multiplied by the scale right now, divisor included. False
  /// when disabled and before the first scale(). A clip coefficient that step has yet to apply is not
  /// seen here.
  ///
  /// Waits only after a step that handed the scale to a Python optimizer: it has written true gradients
  /// if it was applied, and nothing if it was skipped. After the step of a C++ AmpAware optimizer
  /// the answer is what it was before.
  bool grads_are_scaled(torch::optim::Optimizer& optimizer) const;
  bool grads_are_scaled(OptimizerAdapter& optimizer) const;

  /// The total weight (micro-batches, samples, tokens) of the gradients that are accumulated until the
  /// next update: true gradients are smaller by it, on top of the scale. update() forgets it.
  ///
  /// A number that is not positive and finite is a c10::ValueError. A tensor (1 element of a real dtype)
  /// is copied and not read: if its value is none of those, the steps are skipped. Throws c10::Error when
  /// disabled, and once gradients of this iteration were unscaled or checked. Does not wait.
  void set_grad_divisor(double divisor);
  void set_grad_divisor(const at::Tensor& divisor);

  /// Runs the optimizer unless one of its gradients holds inf or NaN; unscales first if that was
  /// not done. Waits for the device once for an ordinary optimizer, never for an AmpAware one (but in
  /// Python a fused SGD does in the step that creates its momentum buffers).
  ///
  /// Throws AssertionError before the first scale() and when no parameter has a gradient, c10::Error
  /// if called twice before update(), and what unscale_ throws. If the optimizer throws, step may be
  /// called again.
  StepResult step(torch::optim::Optimizer& optimizer);
  StepResult step(OptimizerAdapter& optimizer);
  /// With a closure only a disabled scaler can step; an enabled one throws, since a re-evaluated
  /// loss would not be scaled.
  StepResult step(torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& closure);

  /// Ends the iteration: adapts the scale to what all optimizers since the last update found, in
  /// place. Does not wait. Throws AssertionError when nothing was checked since the last update.
  void update();
  /// Ends the iteration and sets the scale instead. What the checks found is dropped. Zero,
  /// infinity and NaN are accepted, as by torch; a value beyond float32 throws. Under a policy with
  /// limits the new scale is clamped to them, and NaN is a c10::ValueError.
  void update(double new_scale);
  /// The same from a 0-dim tensor on the scaler's device type that requires no gradient; it is
  /// copied. A NaN in it is not noticed, since that would wait.
  void update(const at::Tensor& new_scale);

  bool is_enabled() const;
  const ScalePolicy& policy() const;
  /// The scale; 1 when disabled. Waits for the device once the scale lives there.
  double get_scale() const;
  /// The scale tensor (0-dim float32), undefined before the first scale(). update() changes it in
  /// place; do not write to it. Does not wait.
  at::Tensor scale_tensor() const;
  /// Clean steps since the last change of the scale. Waits for the device once the count lives
  /// there.
  std::int64_t get_growth_tracker() const;

  /// Factors and interval, effective at the next update(). The setters check like AmpScalerOptions.
  double get_growth_factor() const;
  double get_backoff_factor() const;
  std::int64_t get_growth_interval() const;
  void set_growth_factor(double new_factor);
  void set_backoff_factor(double new_factor);
  void set_growth_interval(std::int64_t new_interval);

  /// Keys and types of torch.amp.GradScaler: scale, growth_factor, backoff_factor (float),
  /// growth_interval, _growth_tracker (int); empty when disabled. Waits for the device once.
  c10::impl::GenericDict state_dict() const;
  /// Takes over such a dict, all of it or nothing; other keys are ignored, an int is accepted for a
  /// float, and a policy clamps the scale. No effect when disabled. Throws c10::Error for an empty
  /// dict, KeyError for a missing key, c10::TypeError and c10::ValueError for a bad value.
  void load_state_dict(const c10::impl::GenericDict& state_dict);

 private:
  struct Impl;
  Impl& impl() const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace ampscaler
