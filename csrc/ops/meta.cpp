// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Meta kernels, for device "meta", FakeTensor and torch.compile. Nothing is computed, and a call with
// any meta argument ends here, whatever the devices of the others. The checks are those of aten's
// Meta kernels, which are fewer and in another order than those of its CPU kernels.

#include <torch/library.h>

#include "ops/checks.h"
#include "ops/signatures.h"

namespace ampscaler::ops {
namespace {

void unscale_meta(at::TensorList /*grads*/, const at::Tensor& found_inf,
                  const at::Tensor& inv_scale) {
  check_unscale_scalars_on_meta(found_inf, inv_scale);
}

void update_scale_meta(const at::Tensor& scale, const at::Tensor& /*growth_tracker*/,
                       const at::Tensor& /*found_inf*/, double /*growth_factor*/,
                       double /*backoff_factor*/, std::int64_t /*growth_interval*/) {
  check_update_scale_on_meta(scale);
  scale.unsafeGetTensorImpl()->bump_version();
}

void advance_scale_meta(const at::Tensor& scale, const at::Tensor& growth_tracker,
                        const at::Tensor& found_inf, at::ArrayRef<double> policy) {
  check_policy(policy);
  update_scale_meta(scale, growth_tracker, found_inf, /*growth_factor=*/0.0,
                    /*backoff_factor=*/0.0, /*growth_interval=*/0);
}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, Meta, library) {
  library.impl("unscale_", static_cast<UnscaleFunction*>(&unscale_meta));
  library.impl("update_scale_", static_cast<UpdateScaleFunction*>(&update_scale_meta));
  library.impl("advance_scale_", static_cast<AdvanceScaleFunction*>(&advance_scale_meta));
}

}  // namespace ampscaler::ops
