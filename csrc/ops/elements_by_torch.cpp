// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// What the passes do to elements; see elements_by_torch.h.

#include "ops/elements_by_torch.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "ops/sums_by_torch.h"

namespace ampscaler::ops {
namespace {

// Multiplies in place and returns how many finite values are not finite any more.
at::Tensor unscale_values(const at::Tensor& values, const at::Tensor& inverse,
                          std::optional<double> clip_value) {
  at::Tensor product = product_of(values, inverse);
  if (clip_value.has_value()) {
    const double limit =
        product.scalar_type() == at::kDouble ? *clip_value : static_cast<float>(*clip_value);
    product = product.clamp(-limit, limit);
  }
  const at::Tensor stored = product.to(values.scalar_type());
  const at::Tensor overflows =
      values.isfinite().logical_and(stored.isfinite().logical_not()).sum(at::kLong);
  values.copy_(stored);
  return overflows;
}

}  // namespace

at::TensorOptions integers_like(const at::Tensor& tensor) {
  return at::TensorOptions(tensor.device()).dtype(at::kLong);
}

at::Tensor as_real(const at::Tensor& values) {
  if (!values.is_complex()) {
    return values;
  }
  return at::view_as_real(values.is_conj() ? values.conj() : values);
}

at::Tensor product_of(const at::Tensor& values, const at::Tensor& factor) {
  const at::ScalarType computed = values.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return values.to(computed) * factor.to(computed);
}

at::Tensor unscale_gradient(const at::Tensor& values, const at::Tensor& inverse,
                            std::optional<double> clip_value) {
  if (!values.is_contiguous()) {
    return unscale_values(values, inverse, clip_value);
  }
  std::vector<at::Tensor> overflows;
  for (const at::Tensor& piece : values.view(-1).split(kChunkElements)) {
    overflows.push_back(unscale_values(piece, inverse, clip_value));
  }
  return at::stack(overflows).sum(0);
}

at::Tensor find_nonfinite_in(const at::Tensor& grad) {
  const auto integers = integers_like(grad);
  const std::int64_t elements = grad.numel();
  const at::Tensor none = at::full({}, -1, integers);
  const at::Tensor zero = at::zeros({}, integers);
  if (elements == 0) {
    return at::stack({none, zero, zero});
  }
  const at::Tensor real = as_real(grad);
  const auto per_element = [&](const at::Tensor& found) {
    return (grad.is_complex() ? found.any(-1) : found).reshape(-1);
  };
  const at::Tensor nans = per_element(real.isnan());
  const at::Tensor found = nans.logical_or(per_element(real.isinf()));
  const at::Tensor count = found.sum(at::kLong);
  const at::Tensor first = at::where(found, at::arange(elements, integers), elements - 1).amin();
  const at::Tensor kind = nans.index_select(0, first.reshape(1)).squeeze(0).to(at::kLong) + 1;
  return at::stack({at::where(count > 0, first, none), at::where(count > 0, kind, zero), count});
}

}  // namespace ampscaler::ops
