// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CUDA backends of `update_scale_` and `advance_scale_`: one launch, with the rule as its argument.

#include "core/policy.h"
#include "kernels/cuda/backends.h"
#include "kernels/cuda/device_call.h"
#include "kernels/cuda/launch.h"
#include "ops/checks.h"

namespace ampscaler::cuda {
namespace {

void advance(const char* operation, const at::Tensor& scale, const at::Tensor& growth_tracker,
             const at::Tensor& found_inf, const core::ScaleRule& rule,
             const core::ScaleLimits& limits) {
  ops::check_same_device(operation, "growth_tracker", growth_tracker, scale);
  ops::check_same_device(operation, "found_inf", found_inf, scale);
  const DeviceCall call(scale.device());
  // Before the write: it throws for an inference tensor outside inference mode.
  scale.unsafeGetTensorImpl()->bump_version();
  check_launches(launch_update_scale(
      scale.mutable_data_ptr<float>(), growth_tracker.mutable_data_ptr<std::int32_t>(),
      found_inf.const_data_ptr<float>(), rule, limits, call.stream()));
}

}  // namespace

void update_scale(const at::Tensor& scale, const at::Tensor& growth_tracker,
                  const at::Tensor& found_inf, double growth_factor, double backoff_factor,
                  std::int64_t growth_interval) {
  ops::check_update_scale(scale, growth_tracker, found_inf);
  advance("update_scale_", scale, growth_tracker, found_inf,
          {growth_factor, backoff_factor, growth_interval}, core::ScaleLimits());
}

void advance_scale(const at::Tensor& scale, const at::Tensor& growth_tracker,
                   const at::Tensor& found_inf, at::ArrayRef<double> policy) {
  ops::check_advance_scale(scale, growth_tracker, found_inf, policy);
  advance("advance_scale_", scale, growth_tracker, found_inf, core::unpack_rule(policy.data()),
          core::unpack_limits(policy.data()));
}

}  // namespace ampscaler::cuda
