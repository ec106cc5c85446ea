// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The stateless chain: missing gradients set aside, the operators called, the plan of one step
// made.

#include "ampscaler/functional.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "core/finite.h"
#include "ops/functional.h"
#include "scaler/host_read.h"

namespace ampscaler::functional {
namespace {

std::vector<at::Tensor> present(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> result;
  std::ranges::copy_if(gradients, std::back_inserter(result),
                       [](const at::Tensor& gradient) { return gradient.defined(); });
  return result;
}

// `values` laid where `pattern` has a gradient.
std::vector<at::Tensor> spread(const std::vector<at::Tensor>& values,
                               const std::vector<at::Tensor>& pattern) {
  std::vector<at::Tensor> result(pattern.size());
  auto next = values.begin();
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i].defined()) {
      result[i] = *next++;
    }
  }
  return result;
}

void check_plan_arguments(double scale, double max_norm, double backoff_factor) {
  ops::check_positive_scale(scale);
  TORCH_CHECK_VALUE(max_norm > 0.0, "max_norm must be positive");
  TORCH_CHECK_VALUE(backoff_factor > 0.0 && backoff_factor < 1.0,
                    "backoff_factor: expected a value in (0, 1), got ", backoff_factor);
}

}  // namespace

std::vector<at::Tensor> unscale_gradients(const std::vector<at::Tensor>& scaled, double scale) {
  return spread(ops::unscale_gradients_scalar(present(scaled), scale), scaled);
}

std::vector<at::Tensor> unscale_gradients(const std::vector<at::Tensor>& scaled,
                                          const at::Tensor& scale) {
  return spread(ops::unscale_gradients_tensor(present(scaled), scale), scaled);
}

at::Tensor global_grad_norm(const std::vector<at::Tensor>& gradients) {
  return ops::global_grad_norm(present(gradients));
}

ClippedGradients unscale_and_clip(const std::vector<at::Tensor>& scaled, const at::Tensor& scale,
                                  double max_norm, double norm_type, double eps) {
  const auto [gradients, norm, coefficient, found_inf] =
      ops::unscale_and_clip(present(scaled), scale, max_norm, {}, norm_type, eps);
  return {spread(gradients, scaled), norm, coefficient, found_inf};
}

MixedPrecisionPlan plan_mixed_precision_update(const std::vector<at::Tensor>& scaled, double scale,
                                               double max_norm, double backoff_factor) {
  check_plan_arguments(scale, max_norm, backoff_factor);
  const c10::AutoGradMode no_grad(false);
  MixedPrecisionPlan plan;
  const std::vector<at::Tensor> unscaled = ops::unscale_gradients_scalar(present(scaled), scale);
  // Decided on float64: finite gradients can have a norm beyond float32.
  const at::Tensor exact_norm = ops::global_grad_norm_in_double(unscaled);
  const double norm = read_scalar(exact_norm);
  plan.grad_norm = exact_norm.to(at::kFloat);
  plan.should_step = core::is_finite(norm);
  if (!plan.should_step) {
    plan.gradients = spread(unscaled, scaled);
    plan.grad_norm.fill_(std::numeric_limits<float>::infinity());
    plan.clip_coefficient = 0.0;
    plan.next_scale = scale * backoff_factor;
    plan.reason = "non_finite_gradient";
    return plan;
  }
  plan.clip_coefficient = std::min(1.0, max_norm / (norm + 1e-12));
  std::vector<at::Tensor> clipped;
  clipped.reserve(unscaled.size());
  for (const at::Tensor& gradient : unscaled) {
    clipped.push_back(gradient * plan.clip_coefficient);
  }
  plan.gradients = spread(clipped, scaled);
  plan.next_scale = scale;
  plan.reason = "finite_gradient";
  return plan;
}

}  // namespace ampscaler::functional
