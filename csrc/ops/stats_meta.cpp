// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Meta kernels of the one-pass operators: the checks, the versions of what would be written, and results
// of the right shape. Sparse meta tensors come here too, since their values are not needed.

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "core/grad_stats.h"
#include "ops/pass_checks.h"
#include "ops/signatures.h"

namespace ampscaler::ops {
namespace {

at::Tensor empty_on(const at::Tensor& reference, at::IntArrayRef shape, at::ScalarType dtype) {
  return at::empty(shape, at::TensorOptions(reference.device()).dtype(dtype));
}

StatsAndFactors empty_results(const at::Tensor& reference) {
  return {empty_on(reference, {core::kStatsSlots}, at::kDouble),
          empty_on(reference, {core::kFactorSlots}, at::kFloat)};
}

StatsAndFactors grad_stats_meta(at::TensorList grads, const at::Tensor& scale,
                                const OptionalTensor& divisor, const OptionalTensor& user_scale,
                                double norm_type, std::optional<double> max_norm,
                                const OptionalTensor& max_norm_tensor, double eps,
                                const OptionalTensor& accumulate) {
  check_pass("grad_stats", grads, scale, divisor, user_scale, norm_type, max_norm, max_norm_tensor,
             eps, accumulate, /*in_place=*/false);
  if (accumulate.has_value()) {
    bump_version(*accumulate);
  }
  return empty_results(scale);
}

StatsAndFactors unscale_with_stats_meta(at::TensorList grads, const at::Tensor& scale,
                                        const OptionalTensor& divisor,
                                        const OptionalTensor& user_scale, double norm_type,
                                        std::optional<double> max_norm,
                                        const OptionalTensor& max_norm_tensor, double eps,
                                        const OptionalTensor& accumulate) {
  check_pass("unscale_with_stats_", grads, scale, divisor, user_scale, norm_type, max_norm,
             max_norm_tensor, eps, accumulate, /*in_place=*/true);
  bump_versions(grads);
  if (accumulate.has_value()) {
    bump_version(*accumulate);
  }
  return empty_results(scale);
}

StatsAndFactors unscale_clamp_meta(at::TensorList grads, const at::Tensor& scale, double clip_value,
                                   const OptionalTensor& divisor,
                                   const OptionalTensor& user_scale) {
  check_unscale_clamp(grads, scale, clip_value, divisor, user_scale);
  bump_versions(grads);
  return empty_results(scale);
}

void scale_grads_meta(at::TensorList grads, const at::Tensor& factor, const at::Tensor& found_inf) {
  check_scale_grads(grads, factor, found_inf);
  bump_versions(grads);
}

at::Tensor find_nonfinite_meta(at::TensorList grads) {
  check_find_nonfinite(grads);
  const std::int64_t rows = static_cast<std::int64_t>(grads.size());
  const at::Device device = grads.empty() ? at::Device(at::kMeta) : grads.front().device();
  return at::empty({rows, 3}, at::TensorOptions(device).dtype(at::kLong));
}

at::Tensor grad_norms_meta(at::TensorList grads, const at::Tensor& scale, double norm_type) {
  check_grad_norms(grads, scale, norm_type);
  return empty_on(scale, {static_cast<std::int64_t>(grads.size())}, at::kFloat);
}

StatsAndFactors merge_stats_meta(at::TensorList stats, double norm_type,
                                 std::optional<double> max_norm,
                                 const OptionalTensor& max_norm_tensor, double eps) {
  check_merge(stats, norm_type, max_norm, max_norm_tensor, eps);
  return empty_results(stats.front());
}

at::Tensor step_factors_meta(const at::Tensor& found_inf, const OptionalTensor& scale,
                             const OptionalTensor& divisor, const OptionalTensor& user_scale,
                             const OptionalTensor& clip_coefficient) {
  check_step_factors(found_inf, scale, divisor, user_scale, clip_coefficient);
  return empty_on(found_inf, {2}, at::kFloat);
}

void register_all(torch::Library& library) {
  library.impl("grad_stats", static_cast<GradStatsFunction*>(&grad_stats_meta));
  library.impl("unscale_with_stats_", static_cast<GradStatsFunction*>(&unscale_with_stats_meta));
  library.impl("unscale_clamp_", static_cast<UnscaleClampFunction*>(&unscale_clamp_meta));
  library.impl("scale_grads_", static_cast<ScaleGradsFunction*>(&scale_grads_meta));
  library.impl("find_nonfinite", static_cast<FindNonfiniteFunction*>(&find_nonfinite_meta));
  library.impl("grad_norms", static_cast<GradNormsFunction*>(&grad_norms_meta));
  library.impl("merge_stats", static_cast<MergeStatsFunction*>(&merge_stats_meta));
  library.impl("step_factors", static_cast<StepFactorsFunction*>(&step_factors_meta));
}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, Meta, library) { register_all(library); }

TORCH_LIBRARY_IMPL(ampscaler, SparseMeta, library) { register_all(library); }

}  // namespace ampscaler::ops
