// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Small pieces that the scaler tests share: parameters with given gradients, and scalers that are
// ready to step.

#include <limits>
#include <vector>

#include <torch/optim/sgd.h>

#include <ampscaler/amp_scaler.h>

namespace ampscaler {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A leaf with that value and gradient.
inline at::Tensor make_parameter(const at::Tensor& value, const at::Tensor& gradient) {
  at::Tensor parameter = value.clone().requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

/// A parameter [1, 1] with a constant gradient.
inline at::Tensor make_parameter(float gradient) {
  return make_parameter(at::ones({2}), at::full({2}, gradient));
}

inline torch::optim::SGD make_sgd(std::vector<at::Tensor> parameters, double lr = 1.0) {
  return torch::optim::SGD(std::move(parameters), torch::optim::SGDOptions(lr));
}

/// A CPU scaler whose scale exists already.
inline AmpScaler make_scaler(double scale, std::int64_t growth_interval = 2000) {
  AmpScaler scaler(AmpScalerOptions(at::kCPU).init_scale(scale).growth_interval(growth_interval));
  scaler.scale(at::ones({}));
  return scaler;
}

inline float first(const at::Tensor& tensor) { return tensor.flatten()[0].item<float>(); }

}  // namespace ampscaler
