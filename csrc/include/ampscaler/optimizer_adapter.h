// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What AmpScaler needs of an optimizer. torch::optim::Optimizer is adapted by the library;
// implement OptimizerAdapter for an optimizer of another kind, or AmpAware in a
// torch::optim::Optimizer that can skip on the device.

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ampscaler/export.h"

namespace ampscaler {

/// Mixed into a torch::optim::Optimizer that divides by the scale and skips by itself, so that no
/// step waits for the device.
class AMPSCALER_API AmpAware {
 public:
  virtual ~AmpAware();

  /// One step on gradients that are still multiplied by `grad_scale` (already unscaled if it is
  /// empty). Must change nothing if `found_inf` (0-dim float32, exactly 0 or 1) is 1, and must not
  /// wait for the device.
  virtual at::Tensor step_amp(const std::optional<at::Tensor>& grad_scale,
                              const at::Tensor& found_inf) = 0;
};

class AMPSCALER_API OptimizerAdapter {
 public:
  virtual ~OptimizerAdapter();

  /// Distinguishes optimizers within one iteration.
  virtual const void* identity() const = 0;

  /// The parameters of all groups, in order; one that is listed twice may be returned twice.
  virtual std::vector<at::Tensor> parameters() const = 0;

  /// Runs the optimizer and returns its value; an undefined tensor for none.
  virtual at::Tensor step() = 0;

  /// True if step_amp works. The default is false.
  virtual bool is_amp_aware() const;

  /// What the user has set as the optimizer's own grad_scale: gradients are larger by this than they
  /// should be, on top of the scale. A real number or a tensor with 1 element; nothing by default.
  virtual std::optional<at::Tensor> user_grad_scale() const;

  /// True if it is certain that step_amp divides by the `grad_scale` it is given, so that a clip
  /// coefficient can be part of it. The default is is_amp_aware().
  virtual bool folds_clip() const;

  /// True if a step_amp that is not skipped leaves true gradients behind, as torch's fused optimizers do.
  /// The default is false: gradients stay as they are.
  virtual bool writes_true_gradients() const;

  /// As AmpAware::step_amp; `grad_scale` has user_grad_scale() in it.
  virtual at::Tensor step_amp(const std::optional<at::Tensor>& grad_scale,
                              const at::Tensor& found_inf);
};

}  // namespace ampscaler
