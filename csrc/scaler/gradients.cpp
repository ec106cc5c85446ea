// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Collecting, checking and grouping gradients; combining what the checks of several devices found.

#include "scaler/gradients.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/max.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
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

at::Tensor combine_found_inf(const std::vector<DeviceFoundInf>& found_inf_per_device,
                             c10::Device device) {
  // The maximum, not torch's sum: fused optimizers skip only when the flag is exactly 1.
  const c10::AutoGradMode no_grad(false);
  if (found_inf_per_device.empty()) {
    return at::zeros({}, at::dtype(at::kFloat).device(device));
  }
  std::vector<at::Tensor> on_device;
  on_device.reserve(found_inf_per_device.size());
  for (const DeviceFoundInf& found : found_inf_per_device) {
    on_device.push_back(ops::on_device(found.found_inf, device));
  }
  // Never the recorded flag itself: what an optimizer does to its copy must not reach update().
  return on_device.size() == 1 ? on_device.front().clone() : at::max(at::stack(on_device));
}

}  // namespace ampscaler
