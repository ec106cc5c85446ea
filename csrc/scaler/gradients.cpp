// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Collecting, checking and grouping gradients.

#include "scaler/gradients.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "ampscaler/ops.h"
#include "ops/checks.h"
#include "ops/device_copy.h"

namespace ampscaler {
namespace {

bool has_duplicates(std::vector<const void*> keys) {
  std::ranges::sort(keys);
  return std::ranges::adjacent_find(keys) != keys.end();
}

const void* gradient_key(const at::Tensor& parameter) {
  return parameter.grad().unsafeGetTensorImpl();
}

at::Tensor gradient_values(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  return gradient.is_sparse() ? gradient._values() : gradient;
}

void coalesce_half_gradient(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (gradient.is_sparse() && gradient.scalar_type() == at::kHalf) {
    parameter.mutable_grad() = gradient.coalesce();
  }
}

}  // namespace

std::vector<at::Tensor> parameters_with_gradient(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> result;
  std::vector<const void*> keys;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.defined() && parameter.grad().defined()) {
      result.push_back(parameter);
      keys.push_back(gradient_key(parameter));
    }
  }
  if (has_duplicates(
          std::move(keys))) {  // rare: hashing every time would cost more than the kernel
    std::unordered_set<const void*> seen;
    std::erase_if(result, [&](const at::Tensor& parameter) {
      return !seen.insert(gradient_key(parameter)).second;
    });
  }
  return result;
}

void check_gradients(const std::vector<at::Tensor>& parameters, bool allow_half) {
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor values = gradient_values(parameter);
    TORCH_CHECK_VALUE(allow_half || values.scalar_type() != at::kHalf,
                      "Attempting to unscale FP16 gradients.");
    ops::check_unscalable(values);
  }
}

GradientGroups group_gradients(const std::vector<at::Tensor>& parameters) {
  GradientGroups groups;
  for (const at::Tensor& parameter : parameters) {
    coalesce_half_gradient(parameter);
    groups.add(gradient_values(parameter));
  }
  return groups;
}

}  // namespace ampscaler
