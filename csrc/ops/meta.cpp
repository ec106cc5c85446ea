// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Meta kernels, for device "meta", FakeTensor and torch.compile. Nothing is computed; like aten's,
// they look at the number of elements of the unscale scalars only, and a call with any meta
// argument ends here, whatever the devices of the others.

#include <torch/library.h>

#include "ops/signatures.h"

namespace ampscaler::ops {
namespace {

void unscale_meta(at::TensorList /*grads*/, const at::Tensor& found_inf,
                  const at::Tensor& inv_scale) {
  TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
}

void update_scale_meta(const at::Tensor& /*scale*/, const at::Tensor& /*growth_tracker*/,
                       const at::Tensor& /*found_inf*/, double /*growth_factor*/,
                       double /*backoff_factor*/, std::int64_t /*growth_interval*/) {}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, Meta, library) {
  library.impl("unscale_", static_cast<UnscaleFunction*>(&unscale_meta));
  library.impl("update_scale_", static_cast<UpdateScaleFunction*>(&update_scale_meta));
}

}  // namespace ampscaler::ops
