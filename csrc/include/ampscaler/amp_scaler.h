// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// AmpScaler keeps low-precision gradients representable: it multiplies the loss, divides the
// gradients and adapts the factor.
//
// Per optimizer, within one iteration (step also accepts READY, and unscales first):
//   READY --unscale_--> UNSCALED --step--> STEPPED --update--> READY
//
// Waiting:  only where a comment says "waits".
// Streams:  the caller's current stream.
// Threads:  one thread at a time. unscale_, step and update refuse a second one while they run.
// Moving:   a scaler that was moved from throws until it is assigned to.
// Errors:   c10::Error and its subclasses (errors.h), with the texts of torch.amp.GradScaler.
//           After one, nothing has changed; but if an optimizer throws in step, its gradients
//           stay divided, and step may be called again.
// Disabled: scale, unscale_ and update do nothing, step runs the optimizer, state_dict is empty.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "ampscaler/export.h"
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

  c10::Device device() const { return device_; }
  double init_scale() const { return init_scale_; }
  double growth_factor() const { return growth_factor_; }
  double backoff_factor() const { return backoff_factor_; }
  std::int64_t growth_interval() const { return growth_interval_; }
  bool enabled() const { return enabled_; }
  const ScalePolicy& policy() const { return policy_; }

 private:
  friend class AmpScaler;  // a loaded scale may be any float32, unlike a first one

  c10::Device device_;
  double init_scale_ = 65536.0;
  double growth_factor_ = 2.0;
  double backoff_factor_ = 0.5;
  std::int64_t growth_interval_ = 2000;
  bool enabled_ = true;
  ScalePolicy policy_;
};

class AMPSCALER_API AmpScaler {
 public:
  explicit AmpScaler(const AmpScalerOptions& options = AmpScalerOptions());
  ~AmpScaler();
  AmpScaler(AmpScaler&& other) noexcept;
  AmpScaler& operator=(AmpScaler&& other) noexcept;
  AmpScaler(const AmpScaler&) = delete;
  AmpScaler& operator=(const AmpScaler&) = delete;

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
  /// c10::ValueError for float16 gradients (their parameters should be float32),
  /// c10::NotImplementedError for other dtypes than floating ones.
  void unscale_(torch::optim::Optimizer& optimizer);
  void unscale_(OptimizerAdapter& optimizer);

  /// Runs the optimizer unless one of its gradients holds inf or NaN; unscales first if that was
  /// not done. Waits for the device once for an ordinary optimizer, never for an AmpAware one.
  ///
  /// Throws AssertionError before the first scale() and when no parameter has a gradient (an
  /// AmpAware optimizer then runs, and update() throws), c10::Error if called twice before update(),
  /// and what unscale_ throws. If the optimizer throws, step may be called again.
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
