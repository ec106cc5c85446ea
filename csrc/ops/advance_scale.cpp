// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The composition behind `advance_scale_` where no kernel is registered.

#include "ops/advance_scale.h"

#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/clamp.h>
#include <torch/library.h>

#include "core/policy.h"
#include "ops/checks.h"
#include "ops/signatures.h"

namespace ampscaler::ops {

void advance_scale_by_torch(const at::Tensor& scale, const at::Tensor& growth_tracker,
                            const at::Tensor& found_inf, at::ArrayRef<double> policy) {
  check_advance_scale(scale, growth_tracker, found_inf, policy);
  const core::ScaleRule rule = core::unpack_rule(policy.data());
  at::Tensor scale_to_write = scale;
  at::Tensor tracker_to_write = growth_tracker;
  at::_amp_update_scale_(scale_to_write, tracker_to_write, found_inf, rule.growth_factor,
                         rule.backoff_factor, rule.growth_interval);
  at::clamp_(scale_to_write, policy[core::kMinScale], policy[core::kMaxScale]);
}

TORCH_LIBRARY_IMPL(ampscaler, CompositeExplicitAutograd, library) {
  library.impl("advance_scale_", static_cast<AdvanceScaleFunction*>(&advance_scale_by_torch));
}

}  // namespace ampscaler::ops
