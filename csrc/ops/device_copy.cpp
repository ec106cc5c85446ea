// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Copies of scalars between devices; see device_copy.h.

#include "ops/device_copy.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/full.h>

#include "ops/plain_keys.h"

namespace ampscaler::ops {
namespace {

// Those that a Scalar holds exactly and torch's macro has a case for.
bool has_exact_scalar(at::ScalarType dtype) {
  switch (dtype) {
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
      return true;
    default:
      return false;
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): the macro nests deeply, the body is one read
std::optional<at::Scalar> value_on_host(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  const bool readable = tensor.is_cpu() && tensor.numel() == 1 && !tensor.requires_grad() &&
                        is_subset(tensor.key_set(), kPlainKeys);
  if (!readable || !has_exact_scalar(dtype)) {
    return std::nullopt;
  }
  return AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "value_on_host",
                                    [&] { return at::Scalar(*tensor.const_data_ptr<scalar_t>()); });
}

at::Tensor copy_on_device(const at::Tensor& tensor, c10::Device device) {
  const at::TensorOptions options = tensor.options().device(device);
  const std::optional<at::Scalar> value = device.is_cpu() ? std::nullopt : value_on_host(tensor);
  if (value) {
    return at::full(tensor.sizes(), *value, options);
  }
  return tensor.to(options, /*non_blocking=*/!device.is_cpu(), /*copy=*/true);
}

at::Tensor on_device(const at::Tensor& tensor, c10::Device device) {
  return tensor.device() == device ? tensor : copy_on_device(tensor, device);
}

}  // namespace ampscaler::ops
