// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CPU backends of `update_scale_` and `advance_scale_`: the rule of core/scale_rule.h applied to three
// scalars.

#include <torch/library.h>

#include "core/policy.h"
#include "core/scale_rule.h"
#include "ops/checks.h"
#include "ops/signatures.h"

namespace ampscaler {
namespace {

void advance(const at::Tensor& scale, const at::Tensor& growth_tracker, const at::Tensor& found_inf,
             const core::ScaleRule& rule, const core::ScaleLimits& limits) {
  // Before the write: it throws for an inference tensor outside inference mode.
  scale.unsafeGetTensorImpl()->bump_version();
  auto& current_scale = *scale.mutable_data_ptr<float>();
  auto& tracker = *growth_tracker.mutable_data_ptr<std::int32_t>();
  const core::ScaleState next = core::advance_scale({current_scale, tracker}, rule, limits,
                                                    *found_inf.const_data_ptr<float>());
  current_scale = next.scale;
  tracker = next.growth_tracker;
}

void update_scale_cpu(const at::Tensor& scale, const at::Tensor& growth_tracker,
                      const at::Tensor& found_inf, double growth_factor, double backoff_factor,
                      std::int64_t growth_interval) {
  ops::check_update_scale(scale, growth_tracker, found_inf);
  advance(scale, growth_tracker, found_inf, {growth_factor, backoff_factor, growth_interval},
          core::ScaleLimits());
}

void advance_scale_cpu(const at::Tensor& scale, const at::Tensor& growth_tracker,
                       const at::Tensor& found_inf, at::ArrayRef<double> policy) {
  ops::check_advance_scale(scale, growth_tracker, found_inf, policy);
  advance(scale, growth_tracker, found_inf, core::unpack_rule(policy.data()),
          core::unpack_limits(policy.data()));
}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, CPU, library) {
  library.impl("update_scale_", static_cast<ops::UpdateScaleFunction*>(&update_scale_cpu));
  library.impl("advance_scale_", static_cast<ops::AdvanceScaleFunction*>(&advance_scale_cpu));
}

}  // namespace ampscaler
