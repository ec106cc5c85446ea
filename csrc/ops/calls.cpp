// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Typed callers of the operators: how the rest of the library reaches the kernels.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_amp_update_scale.h>

#include "ampscaler/ops.h"
#include "core/policy.h"
#include "ops/signatures.h"

namespace ampscaler::ops {
namespace {

constexpr const char* kUnscale = "ampscaler::unscale_";
constexpr const char* kUpdateScale = "ampscaler::update_scale_";
constexpr const char* kAdvanceScale = "ampscaler::advance_scale_";

c10::OperatorHandle find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

bool has_kernel(const char* name, c10::DeviceType device_type) {
  const auto key = c10::computeDispatchKey(std::nullopt, c10::kStrided, c10::Device(device_type));
  return find(name).hasKernelForDispatchKey(key);
}

}  // namespace

void unscale_(at::TensorList grads, const at::Tensor& found_inf, const at::Tensor& inv_scale) {
  static const auto operation = find(kUnscale).typed<UnscaleFunction>();
  // Gradients are edited below autograd, as torch's scaler does under no_grad. Without the guard
  // torch's fallback for operators without a derivative would box the list, which costs more than
  // the kernel for many small tensors.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  operation.call(grads, found_inf, inv_scale);
}

void update_scale_(const at::Tensor& scale, const at::Tensor& growth_tracker,
                   const at::Tensor& found_inf, double growth_factor, double backoff_factor,
                   std::int64_t growth_interval) {
  static const auto operation = find(kUpdateScale).typed<UpdateScaleFunction>();
  if (has_kernel(kUpdateScale, scale.device().type())) {
    operation.call(scale, growth_tracker, found_inf, growth_factor, backoff_factor,
                   growth_interval);
  } else {  // a CPU-only build, or a device that we know nothing of
    at::_amp_update_scale_(const_cast<at::Tensor&>(scale), const_cast<at::Tensor&>(growth_tracker),
                           found_inf, growth_factor, backoff_factor, growth_interval);
  }
}

void advance_scale_(const at::Tensor& scale, const at::Tensor& growth_tracker,
                    const at::Tensor& found_inf, double growth_factor, double backoff_factor,
                    std::int64_t growth_interval, const ScalePolicy& policy) {
  static const auto operation = find(kAdvanceScale).typed<AdvanceScaleFunction>();
  core::ScaleLimits limits;
  limits.min_scale = static_cast<float>(policy.min_scale().value_or(limits.min_scale));
  limits.max_scale = static_cast<float>(policy.max_scale().value_or(limits.max_scale));
  const core::PackedPolicy packed =
      core::pack_policy({growth_factor, backoff_factor, growth_interval}, limits);
  operation.call(scale, growth_tracker, found_inf, packed);
}

bool has_unscale_kernel(c10::DeviceType device_type) { return has_kernel(kUnscale, device_type); }

}  // namespace ampscaler::ops
