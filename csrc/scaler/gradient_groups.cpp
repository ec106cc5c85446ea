// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Grouping by device and dtype, the choice between our operator and torch's, and the combination of
// what the checks of several devices found.

#include "ampscaler/gradient_groups.h"

#include <algorithm>
#include <ranges>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/max.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "ampscaler/ops.h"
#include "ops/device_copy.h"
#include "ops/pass_checks.h"
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

bool is_cuda_bfloat16(const at::Tensor& gradient) {
  return gradient.is_cuda() && gradient.scalar_type() == at::kBFloat16;
}

// Whether nothing active on this thread must see torch's operator.
bool is_thread_plain() {
  return is_subset(c10::impl::tls_local_dispatch_key_set().included_, kHarmlessThreadKeys);
}

// Strided gradients too: our kernels copy them. A mode does not get to see torch's operator called
// for bfloat16 on CUDA, where that can only fail.
bool is_for_our_operator(const at::Tensor& gradient) {
  return is_subset(gradient.key_set(), kPlainKeys) && has_native_kernel(gradient) &&
         (is_thread_plain() || is_cuda_bfloat16(gradient));
}

// Only torch's own kernels refuse: what a subclass does is its own business.
void check_torch_takes(const at::Tensor& gradient) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !is_cuda_bfloat16(gradient) || !is_subset(gradient.key_set(), kPlainKeys),
      "\"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'");
}

void unscale_by_us(const GradientGroups::DtypeGroup& group, const at::Tensor& inv_scale,
                   const at::Tensor& found_inf) {
  if (!group.may_share_memory || ops::are_disjoint(group.gradients)) {
    ops::unscale_(group.gradients, found_inf, inv_scale);
    return;
  }
  for (const at::Tensor& gradient : group.gradients) {  // one launch for all would race
    ops::unscale_(gradient, found_inf, inv_scale);
  }
}

void unscale_group(const GradientGroups::DtypeGroup& group, const at::Tensor& inv_scale,
                   const at::Tensor& found_inf) {
  if (group.ours) {
    unscale_by_us(group, inv_scale, found_inf);
  } else {
    at::_amp_foreach_non_finite_check_and_unscale_(group.gradients,
                                                   const_cast<at::Tensor&>(found_inf), inv_scale);
  }
}

// Calls `visit(index of the device, group)` for our groups, or for torch's.
template <typename Visit>
void for_each_group(const std::vector<GradientGroups::DeviceGroup>& groups, bool ours,
                    Visit visit) {
  const auto is_wanted = [ours](const GradientGroups::DtypeGroup& group) {
    return group.ours == ours;
  };
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const GradientGroups::DtypeGroup& group :
         groups[i].dtypes | std::views::filter(is_wanted)) {
      visit(i, group);
    }
  }
}

}  // namespace

bool GradientGroups::may_take_our_operators(const at::Tensor& gradient) {
  return is_thread_plain() && is_subset(gradient.key_set(), kPlainKeys | kSparseKeys);
}

bool GradientGroups::is_plain(const at::Tensor& gradient) {
  return is_thread_plain() && is_subset(gradient.key_set(), kPlainKeys) &&
         has_native_kernel(gradient) && gradient.is_non_overlapping_and_dense();
}

void GradientGroups::add(const at::Tensor& gradient) {
  DtypeGroup& group = group_of(gradient.device(), gradient.scalar_type());
  group.ours = group.ours && is_for_our_operator(gradient);
  group.may_share_memory = true;
  group.gradients.push_back(gradient);
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
  group.ours = group.ours && plain;
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
    dtype_group = dtypes.insert(dtypes.end(), DtypeGroup{dtype, {}, true, false});
  }
  return *dtype_group;
}

std::vector<DeviceFoundInf> GradientGroups::unscale_(const at::Tensor& inv_scale,
                                                     const at::Tensor& found_inf) const {
  const c10::AutoGradMode no_grad(false);
  for_each_group(groups_, /*ours=*/false, [](std::size_t /*device*/, const DtypeGroup& group) {
    std::ranges::for_each(group.gradients, check_torch_takes);
  });
  std::vector<DeviceFoundInf> found_inf_per_device;
  std::vector<at::Tensor> inv_scales;
  found_inf_per_device.reserve(groups_.size());
  inv_scales.reserve(groups_.size());
  for (const DeviceGroup& device_group : groups_) {
    found_inf_per_device.push_back(
        {device_group.device, ops::copy_on_device(found_inf, device_group.device)});
    inv_scales.push_back(ops::copy_on_device(inv_scale, device_group.device));
  }
  for (const bool ours : {false, true}) {
    for_each_group(groups_, ours, [&](std::size_t device, const DtypeGroup& group) {
      unscale_group(group, inv_scales[device], found_inf_per_device[device].found_inf);
    });
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
