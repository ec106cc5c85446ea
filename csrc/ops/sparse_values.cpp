// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Sparse gradients as dense values; see sparse_values.h.

#include "ops/sparse_values.h"

#include <algorithm>

#include "ops/pass_checks.h"

namespace ampscaler::ops {
namespace {

bool is_sparse(const at::Tensor& grad) { return grad.layout() == at::kSparse; }

at::Tensor value_to_write(const at::Tensor& grad) {
  if (!is_sparse(grad)) {
    return grad;
  }
  if (!grad.is_coalesced()) {
    grad.copy_(grad.coalesce());
  }
  bump_version(grad);
  return grad._values();
}

}  // namespace

bool has_sparse(at::TensorList grads) { return std::any_of(grads.begin(), grads.end(), is_sparse); }

std::vector<at::Tensor> values_to_read(at::TensorList grads) {
  std::vector<at::Tensor> values;
  values.reserve(grads.size());
  for (const at::Tensor& grad : grads) {
    values.push_back(is_sparse(grad) ? grad.coalesce()._values() : grad);
  }
  return values;
}

std::vector<at::Tensor> values_to_write(at::TensorList grads) {
  std::vector<at::Tensor> values;
  values.reserve(grads.size());
  for (const at::Tensor& grad : grads) {
    values.push_back(value_to_write(grad));
  }
  return values;
}

}  // namespace ampscaler::ops
