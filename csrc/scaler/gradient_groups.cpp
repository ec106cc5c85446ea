// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Grouping by device and dtype, the choice between our operator and torch's, and the combination of
// what the checks of several devices found.

#include "ampscaler/gradient_groups.h"

#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/max.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "ampscaler/ops.h"
#include "ops/device_copy.h"
#include "ops/plain_keys.h"
#include "scaler/host_read.h"

namespace ampscaler {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using ops::is_subset;
using ops::kPlainKeys;

constexpr DispatchKeySet kSparseKeys =
    DispatchKeySet({DispatchKey::SparseCPU, DispatchKey::SparseCUDA, DispatchKey::AutogradCPU,
                    DispatchKey::AutogradCUDA});

// Keys that may be active on the thread without anyone wanting to see the operator: none of them
// has a kernel for it.
constexpr DispatchKeySet kHarmlessThreadKeys =
    c10::autocast_dispatch_keyset |
    DispatchKeySet({DispatchKey::ADInplaceOrView, DispatchKey::BackendSelect});

bool has_native_kernel(const at::Tensor& gradient) {
  static const bool has_cuda_kernel = ops::has_unscale_kernel(at::kCUDA);
  const at::ScalarType dtype = gradient.scalar_type();
  const bool has_dtype =
      dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kDouble;
  return has_dtype && (gradient.is_cpu() || (has_cuda_kernel && gradient.is_cuda()));
}

void unscale_group(const GradientGroups::DtypeGroup& group, const at::Tensor& inv_scale,
                   const at::Tensor& found_inf) {
  if (group.plain) {
    ops::unscale_(group.gradients, found_inf, inv_scale);
  } else {
    at::_amp_foreach_non_finite_check_and_unscale_(group.gradients,
                                                   const_cast<at::Tensor&>(found_inf), inv_scale);
  }
}

}  // namespace

bool GradientGroups::may_take_our_operators(const at::Tensor& gradient) {
  return is_subset(c10::impl::tls_local_dispatch_key_set().included_, kHarmlessThreadKeys) &&
         is_subset(gradient.key_set(), kPlainKeys | kSparseKeys);
}

bool GradientGroups::is_plain(const at::Tensor& gradient) {
  return is_subset(c10::impl::tls_local_dispatch_key_set().included_, kHarmlessThreadKeys) &&
         is_subset(gradient.key_set(), kPlainKeys) && has_native_kernel(gradient) &&
         gradient.is_non_overlapping_and_dense();
}

void GradientGroups::add(const at::Tensor& gradient) {
  add(gradient.device(), gradient.scalar_type(), gradient, is_plain(gradient));
}

bool GradientGroups::add_plain(const at::Tensor& gradient) {
  const bool plain = is_plain(gradient);
  if (plain) {
    add(gradient.device(), gradient.scalar_type(), gradient, plain);
  }
  return plain;
}

void GradientGroups::add(c10::Device device, at::ScalarType dtype, const at::Tensor& gradient,
                         bool plain) {
  DtypeGroup& group = group_of(device, dtype);
  group.plain = group.plain && plain;
  group.gradients.push_back(gradient);
}

GradientGroups::DtypeGroup& GradientGroups::group_of(c10::Device device, at::ScalarType dtype) {
  // Few groups exist, and neighbours mostly share one: a linear search beats hashing.
  auto device_group = std::ranges::find(groups_, device, &DeviceGroup::device);
  if (device_group == groups_.end()) {
    device_group = groups_.insert(groups_.end(), DeviceGroup{device, {}});
  }
  auto& dtypes = device_group->dtypes;
  auto dtype_group = std::ranges::find(dtypes, dtype, &DtypeGroup::dtype);
  if (dtype_group == dtypes.end()) {
    dtype_group = dtypes.insert(dtypes.end(), DtypeGroup{dtype, {}, true});
  }
  return *dtype_group;
}

std::vector<DeviceFoundInf> GradientGroups::unscale_(const at::Tensor& inv_scale,
                                                     const at::Tensor& found_inf) const {
  const c10::AutoGradMode no_grad(false);
  std::vector<DeviceFoundInf> found_inf_per_device;
  found_inf_per_device.reserve(groups_.size());
  for (const DeviceGroup& device_group : groups_) {
    found_inf_per_device.push_back(
        {device_group.device, ops::copy_on_device(found_inf, device_group.device)});
    const at::Tensor device_inv_scale = ops::copy_on_device(inv_scale, device_group.device);
    for (const DtypeGroup& group : device_group.dtypes) {
      unscale_group(group, device_inv_scale, found_inf_per_device.back().found_inf);
    }
  }
  return found_inf_per_device;
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
    on_device.push_back(ops::on_device(found.found_inf, device).reshape({}));
  }
  // Never the recorded flag itself: what an optimizer does to its copy must not reach update().
  return on_device.size() == 1 ? on_device.front().clone() : at::max(at::stack(on_device));
}

double sum_found_inf(const std::vector<DeviceFoundInf>& found_inf_per_device) {
  std::vector<at::Tensor> flags;
  flags.reserve(found_inf_per_device.size());
  for (const DeviceFoundInf& found : found_inf_per_device) {
    flags.push_back(found.found_inf);
  }
  return read_sum(flags);
}

}  // namespace ampscaler
