// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CUDA backends of `update_scale_` and `advance_scale_`, torch's side: checks, device guard, current
// stream, registration.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "core/policy.h"
#include "kernels/cuda/launch.h"
#include "ops/checks.h"
#include "ops/signatures.h"

namespace ampscaler {
namespace {

void advance(const char* operation, const at::Tensor& scale, const at::Tensor& growth_tracker,
             const at::Tensor& found_inf, const core::ScaleRule& rule,
             const core::ScaleLimits& limits) {
  ops::check_same_device(operation, "growth_tracker", growth_tracker, scale);
  ops::check_same_device(operation, "found_inf", found_inf, scale);
  const c10::cuda::CUDAGuard guard(scale.device());
  // Before the write: it throws for an inference tensor outside inference mode.
  scale.unsafeGetTensorImpl()->bump_version();
  C10_CUDA_CHECK(cuda::launch_update_scale(
      scale.mutable_data_ptr<float>(), growth_tracker.mutable_data_ptr<std::int32_t>(),
      found_inf.const_data_ptr<float>(), rule, limits, c10::cuda::getCurrentCUDAStream().stream()));
}

void update_scale_cuda(const at::Tensor& scale, const at::Tensor& growth_tracker,
                       const at::Tensor& found_inf, double growth_factor, double backoff_factor,
                       std::int64_t growth_interval) {
  ops::check_update_scale(scale, growth_tracker, found_inf);
  advance("update_scale_", scale, growth_tracker, found_inf,
          {growth_factor, backoff_factor, growth_interval}, core::ScaleLimits());
}

void advance_scale_cuda(const at::Tensor& scale, const at::Tensor& growth_tracker,
                        const at::Tensor& found_inf, at::ArrayRef<double> policy) {
  ops::check_advance_scale(scale, growth_tracker, found_inf, policy);
  advance("advance_scale_", scale, growth_tracker, found_inf, core::unpack_rule(policy.data()),
          core::unpack_limits(policy.data()));
}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, CUDA, library) {
  library.impl("update_scale_", static_cast<ops::UpdateScaleFunction*>(&update_scale_cuda));
  library.impl("advance_scale_", static_cast<ops::AdvanceScaleFunction*>(&advance_scale_cuda));
}

}  // namespace ampscaler
