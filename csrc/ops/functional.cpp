// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// unscale_gradients, global_grad_norm and unscale_and_clip: definition and registration for every backend
// at once.

#include "ops/functional.h"

#include <limits>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "core/clip.h"
#include "core/finite.h"
#include "ops/device_copy.h"

namespace ampscaler::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// torch promotes what has no dimensions like any other tensor.
at::Tensor in_dtype_of(const at::Tensor& gradient, const at::Tensor& result) {
  return result.scalar_type() == gradient.scalar_type() ? result
                                                        : result.to(gradient.scalar_type());
}

// A CPU scalar meets tensors of any device as it is.
at::Tensor near(const at::Tensor& scalar, const at::Tensor& gradient) {
  return scalar.is_cpu() ? scalar : on_device(scalar, gradient.device());
}

at::Tensor largest_of(const at::Tensor& values) {
  return values.sym_numel() == 0 ? at::zeros({}, values.options())
                                 : at::linalg_vector_norm(values, kInfinity);
}

// The p-norm of float64 values without overflow or underflow of the powers: of values divided by the
// largest.
at::Tensor scaled_norm(const at::Tensor& values, double p) {
  const at::Tensor largest = largest_of(values);
  const at::Tensor usable = largest.isfinite().logical_and(largest > 0);
  const at::Tensor divisor = at::where(usable, largest, at::ones_like(largest));
  return at::linalg_vector_norm(values / divisor, p) * divisor;
}

// float64 holds every square of the other dtypes, but not every power.
at::Tensor norm_in_double(const at::Tensor& gradient, double p) {
  const at::Tensor values = gradient.is_sparse() ? gradient.coalesce()._values() : gradient;
  const at::Tensor real = values.is_complex() ? at::view_as_real(values.resolve_conj()) : values;
  if (p == 0.0 || (p == 2.0 && real.scalar_type() != at::kDouble)) {
    return at::linalg_vector_norm(real, p, std::nullopt, /*keepdim=*/false, at::kDouble);
  }
  const at::Tensor in_double = real.to(at::kDouble);
  return p == kInfinity ? largest_of(in_double) : scaled_norm(in_double, p);
}

// Norm of the norms. For p = 0 the number of gradients with an element that is not 0, like torch's.
at::Tensor total_norm(at::TensorList gradients, double p) {
  const at::Device device = gradients.front().device();
  std::vector<at::Tensor> norms;
  norms.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients) {
    norms.push_back(on_device(norm_in_double(gradient, p), device));
  }
  const at::Tensor all = at::stack(norms);
  return p == kInfinity || p == 0.0 ? at::linalg_vector_norm(all, p) : scaled_norm(all, p);
}

void check_clip_arguments(const at::Tensor& scale, double max_norm, double norm_type, double eps) {
  TORCH_CHECK_VALUE(scale.sym_numel() == 1,
                    "unscale_and_clip: scale: expected a tensor of 1 element, got shape ",
                    scale.sym_sizes());
  TORCH_CHECK_VALUE(max_norm > 0.0, "unscale_and_clip: max_norm: expected a value > 0, got ",
                    max_norm);
  TORCH_CHECK_VALUE(norm_type >= 0.0, "unscale_and_clip: norm_type: expected a value >= 0, got ",
                    norm_type);
  TORCH_CHECK_VALUE(eps >= 0.0 && core::is_finite(eps),
                    "unscale_and_clip: eps: expected a finite value >= 0, got ", eps);
}

// The limit as a number on the device of `norm`: inf for a tensor that is not above 0.
at::Tensor limit_near(const at::Tensor& norm, double max_norm,
                      const std::optional<at::Tensor>& max_norm_tensor) {
  TORCH_CHECK_VALUE(!max_norm_tensor || max_norm_tensor->sym_numel() == 1,
                    "unscale_and_clip: max_norm: expected a tensor of 1 element, got shape ",
                    max_norm_tensor->sym_sizes());
  const at::Tensor given =
      max_norm_tensor ? on_device(max_norm_tensor->reshape({}).to(at::kDouble), norm.device())
                      : at::full({}, max_norm, norm.options());
  return at::where(given > 0, given, at::full({}, kInfinity, norm.options()));
}

}  // namespace

void check_positive_scale(double scale) {
  TORCH_CHECK_VALUE(!(scale <= 0.0), "scale must be positive");
  TORCH_CHECK_VALUE(core::is_finite(scale), "scale must be finite, got ", scale);
}

std::vector<at::Tensor> unscale_gradients_tensor(at::TensorList scaled, const at::Tensor& scale) {
  TORCH_CHECK_VALUE(scale.sym_numel() == 1,
                    "unscale_gradients: scale: expected a tensor of 1 element, got shape ",
                    scale.sym_sizes());
  std::vector<at::Tensor> result;
  result.reserve(scaled.size());
  for (const at::Tensor& gradient : scaled) {
    result.push_back(in_dtype_of(gradient, gradient / near(scale.reshape({}), gradient)));
  }
  return result;
}

std::vector<at::Tensor> unscale_gradients_scalar(at::TensorList scaled, double scale) {
  check_positive_scale(scale);
  std::vector<at::Tensor> result;
  result.reserve(scaled.size());
  for (const at::Tensor& gradient : scaled) {
    result.push_back(gradient / at::Scalar(scale));
  }
  return result;
}

at::Tensor global_grad_norm_in_double(at::TensorList gradients) {
  if (gradients.empty()) {
    return at::zeros({}, at::kDouble);
  }
  return total_norm(gradients, 2.0);
}

at::Tensor global_grad_norm(at::TensorList gradients) {
  return global_grad_norm_in_double(gradients).to(at::kFloat);
}

UnscaledAndClipped unscale_and_clip(at::TensorList scaled, const at::Tensor& scale, double max_norm,
                                    const std::optional<at::Tensor>& max_norm_tensor,
                                    double norm_type, double eps) {
  check_clip_arguments(scale, max_norm, norm_type, eps);
  std::vector<at::Tensor> gradients = unscale_gradients_tensor(scaled, scale);
  const at::Tensor norm = gradients.empty() ? at::zeros({}, scale.options().dtype(at::kDouble))
                                            : total_norm(gradients, norm_type);
  const at::Tensor largest =
      norm_type == 0.0 && !gradients.empty() ? total_norm(gradients, kInfinity) : norm;
  const at::Tensor limit = limit_near(norm, max_norm, max_norm_tensor);
  const at::Tensor binding = largest.isfinite().logical_and(norm > limit);
  const at::Tensor one = at::ones_like(norm);
  // Where the norm is not used it must not be divided by: 0 * inf would make the backward pass NaN.
  const at::Tensor quotient = limit / (at::where(binding, norm, one) + eps);
  const at::Tensor wanted = at::where(binding, quotient, one);
  const at::Tensor usable = (wanted >= core::kSmallestFactor)
                                .logical_and(largest.isfinite())
                                .logical_and(near(scale.reshape({}), norm).isfinite());
  const at::Tensor coefficient = at::where(usable, wanted, one);
  for (at::Tensor& gradient : gradients) {
    gradient = in_dtype_of(gradient, gradient * near(coefficient, gradient));
  }
  return {std::move(gradients), norm.to(at::kFloat), coefficient.to(at::kFloat),
          usable.logical_not().to(at::kFloat)};
}

TORCH_LIBRARY_IMPL(ampscaler, CompositeImplicitAutograd, library) {
  library.impl("unscale_gradients.Tensor", &unscale_gradients_tensor);
  library.impl("unscale_gradients.Scalar", &unscale_gradients_scalar);
  library.impl("global_grad_norm", &global_grad_norm);
  library.impl("unscale_and_clip", &unscale_and_clip);
}

}  // namespace ampscaler::ops
