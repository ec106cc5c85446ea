// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// unscale_gradients and global_grad_norm: definition and registration for every backend at once.

#include "ops/functional.h"

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "core/finite.h"
#include "ops/device_copy.h"

namespace ampscaler::ops {
namespace {

template <typename Scale>
std::vector<at::Tensor> divide_all(at::TensorList scaled, const Scale& scale) {
  std::vector<at::Tensor> result;
  result.reserve(scaled.size());
  for (const at::Tensor& gradient : scaled) {
    result.push_back(gradient / scale);
  }
  return result;
}

// The 2-norm of float64 values without overflow or underflow of the squares: of values divided by
// the largest.
at::Tensor scaled_norm(const at::Tensor& values) {
  if (values.numel() == 0) {
    return at::zeros({}, values.options());
  }
  const at::Tensor largest =
      at::linalg_vector_norm(values, std::numeric_limits<double>::infinity());
  const at::Tensor usable = largest.isfinite().logical_and(largest > 0);
  const at::Tensor divisor = at::where(usable, largest, at::ones_like(largest));
  return at::linalg_vector_norm(values / divisor, 2) * divisor;
}

// float64 holds every square of the other dtypes.
at::Tensor norm_in_double(const at::Tensor& gradient) {
  const at::Tensor values = gradient.is_sparse() ? gradient.coalesce()._values() : gradient;
  const at::Tensor real = values.is_complex() ? at::view_as_real(values.resolve_conj()) : values;
  if (real.scalar_type() == at::kDouble) {
    return scaled_norm(real);
  }
  return at::linalg_vector_norm(real, 2, std::nullopt, /*keepdim=*/false, at::kDouble);
}

}  // namespace

void check_positive_scale(double scale) {
  TORCH_CHECK_VALUE(!(scale <= 0.0), "scale must be positive");
  TORCH_CHECK_VALUE(core::is_finite(scale), "scale must be finite, got ", scale);
}

std::vector<at::Tensor> unscale_gradients_tensor(at::TensorList scaled, const at::Tensor& scale) {
  TORCH_CHECK_VALUE(scale.numel() == 1,
                    "unscale_gradients: scale: expected a tensor of 1 element, got shape ",
                    scale.sizes());
  return divide_all(scaled, scale.reshape({}));
}

std::vector<at::Tensor> unscale_gradients_scalar(at::TensorList scaled, double scale) {
  check_positive_scale(scale);
  return divide_all(scaled, at::Scalar(scale));
}

at::Tensor global_grad_norm_in_double(at::TensorList gradients) {
  if (gradients.empty()) {
    return at::zeros({}, at::kDouble);
  }
  const at::Device device = gradients.front().device();
  std::vector<at::Tensor> norms;
  norms.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients) {
    norms.push_back(on_device(norm_in_double(gradient), device));
  }
  return scaled_norm(at::stack(norms));
}

at::Tensor global_grad_norm(at::TensorList gradients) {
  return global_grad_norm_in_double(gradients).to(at::kFloat);
}

TORCH_LIBRARY_IMPL(ampscaler, CompositeImplicitAutograd, library) {
  library.impl("unscale_gradients.Tensor", &unscale_gradients_tensor);
  library.impl("unscale_gradients.Scalar", &unscale_gradients_scalar);
  library.impl("global_grad_norm", &global_grad_norm);
}

}  // namespace ampscaler::ops
