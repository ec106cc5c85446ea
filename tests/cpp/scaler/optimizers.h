// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Optimizers that scaler tests share: one that skips on the device, and one whose way with the factor it
// is handed is not known.

#include <optional>

#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <ampscaler/optimizer_adapter.h>

namespace ampscaler {

/// Skips on the device, as fused optimizers do; leaves gradients alone.
class DeviceSkipping : public torch::optim::SGD, public AmpAware {
 public:
  using SGD::SGD;
  at::Tensor step_amp(const std::optional<at::Tensor>& grad_scale,
                      const at::Tensor& found_inf) override {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : param_groups()[0].params()) {
      if (parameter.grad().defined()) {
        const at::Tensor gradient = grad_scale ? parameter.grad() / *grad_scale : parameter.grad();
        parameter.sub_(at::where(found_inf == 1, at::zeros_like(gradient), gradient));
      }
    }
    return {};
  }
};

/// A wrapper around it that does not promise to hand on what it gets, and knows a factor of the user.
class UnsureAdapter : public OptimizerAdapter {
 public:
  explicit UnsureAdapter(DeviceSkipping& optimizer) : optimizer_(optimizer) {}

  const void* identity() const override { return this; }
  std::vector<at::Tensor> parameters() const override {
    return optimizer_.param_groups()[0].params();
  }
  at::Tensor step() override { return optimizer_.step(); }
  bool is_amp_aware() const override { return true; }
  bool folds_clip() const override { return folds; }
  std::optional<at::Tensor> user_grad_scale() const override { return user; }
  at::Tensor step_amp(const std::optional<at::Tensor>& grad_scale,
                      const at::Tensor& found_inf) override {
    return optimizer_.step_amp(grad_scale, found_inf);
  }

  bool folds = false;
  std::optional<at::Tensor> user = {};

 private:
  DeviceSkipping& optimizer_;
};

inline DeviceSkipping make_device_skipping(std::vector<at::Tensor> parameters) {
  return DeviceSkipping(std::move(parameters), torch::optim::SGDOptions(1.0));
}

}  // namespace ampscaler
