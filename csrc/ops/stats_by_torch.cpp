// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The one-pass operators by torch's operators; see stats_by_torch.h. A list with sparse gradients is
// turned into one of dense values, and then goes to whatever kernel the device has.

#include "ops/stats_by_torch.h"

#include <cstddef>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "ampscaler/ops.h"
#include "ops/conclusions_by_torch.h"
#include "ops/elements_by_torch.h"
#include "ops/pass_checks.h"
#include "ops/sparse_values.h"
#include "ops/sums_by_torch.h"

namespace ampscaler::ops {
namespace {

// Kernels below autograd, for what they compute from and write to gradients that require a gradient.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

at::Tensor total_of(const std::vector<at::Tensor>& sums, const at::Tensor& scale) {
  return sums.empty() ? at::zeros({core::kGradSumsWords}, integers_like(scale))
                      : merge_sums(at::stack(sums));
}

at::Tensor read_sums_of(at::TensorList grads, const at::Tensor& scale, double norm_type) {
  std::vector<at::Tensor> sums;
  for (const at::Tensor& grad : grads) {
    sums.push_back(sums_by_torch(as_real(grad), norm_type, real_type(scale.device())));
  }
  return total_of(sums, scale);
}

// The sums of the values before they are unscaled.
at::Tensor unscale_and_sum(at::TensorList grads, const ScalingTensors& scaling, double norm_type,
                           std::optional<double> clip_value) {
  const at::Tensor inverse = inverse_scale(scaling);
  std::vector<at::Tensor> all;
  for (const at::Tensor& grad : grads) {
    const at::Tensor values = as_real(grad);
    const at::Tensor sums = sums_by_torch(values, norm_type, scaling.scale.scalar_type());
    sums.select(0, word_index(offsetof(core::GradSums, overflows)))
        .add_(unscale_gradient(values, inverse, clip_value));
    all.push_back(sums);
  }
  return total_of(all, scaling.scale);
}

at::Tensor join_earlier(const at::Tensor& sums, const OptionalTensor& accumulate) {
  if (!accumulate.has_value()) {
    return sums;
  }
  accumulate->copy_(merge_sums(at::stack({*accumulate, sums})));
  bump_version(*accumulate);
  return *accumulate;
}

StatsAndFactors to_tuple(const GradStats& results) { return {results.stats, results.factors}; }

GradStatsOptions options_of(const OptionalTensor& divisor, const OptionalTensor& user_scale,
                            double norm_type, std::optional<double> max_norm,
                            const OptionalTensor& max_norm_tensor, double eps,
                            const OptionalTensor& accumulate) {
  return {.divisor = divisor,
          .user_scale = user_scale,
          .norm_type = norm_type,
          .max_norm = max_norm,
          .max_norm_tensor = max_norm_tensor,
          .eps = eps,
          .accumulate = accumulate};
}

at::Tensor norm_of(const at::Tensor& grad, const at::Tensor& factor, double norm_type) {
  const at::ScalarType real = factor.scalar_type();
  const at::Tensor words = sums_by_torch(as_real(grad), norm_type, real);
  if (grad.numel() == 0) {
    return at::zeros({}, factor.options());
  }
  if (norm_type == 0.0) {  // of one gradient it is the number of elements that are not 0
    const at::Tensor zeros = words.select(0, word_index(offsetof(core::GradSums, zeros)));
    const at::Tensor elements = words.select(0, word_index(offsetof(core::GradSums, elements)));
    return unless_nonfinite(words, (elements - zeros).to(real));
  }
  const ScaledReals stored = stored_norms(words, norm_type, real);
  return unless_nonfinite(words, to_real({stored.mantissa * factor, stored.exponent}, real));
}

}  // namespace

StatsAndFactors grad_stats_by_torch(at::TensorList grads, const at::Tensor& scale,
                                    const OptionalTensor& divisor, const OptionalTensor& user_scale,
                                    double norm_type, std::optional<double> max_norm,
                                    const OptionalTensor& max_norm_tensor, double eps,
                                    const OptionalTensor& accumulate) {
  check_pass("grad_stats", grads, scale, divisor, user_scale, norm_type, max_norm, max_norm_tensor,
             eps, accumulate, /*in_place=*/false);
  check_disjoint("grad_stats", grads);
  const BelowAutograd guard;
  if (has_sparse(grads)) {
    return to_tuple(grad_stats(
        values_to_read(grads), scale,
        options_of(divisor, user_scale, norm_type, max_norm, max_norm_tensor, eps, accumulate)));
  }
  const ScalingTensors scaling =
      make_scaling(scale, divisor, user_scale, real_type(scale.device()));
  const ClipTensors rule = make_clip_rule(max_norm, max_norm_tensor, eps, scaling.scale.options());
  const at::Tensor sums = join_earlier(read_sums_of(grads, scale, norm_type), accumulate);
  return finish_by_torch(sums, norm_type, scaling, rule);
}

StatsAndFactors unscale_with_stats_by_torch(at::TensorList grads, const at::Tensor& scale,
                                            const OptionalTensor& divisor,
                                            const OptionalTensor& user_scale, double norm_type,
                                            std::optional<double> max_norm,
                                            const OptionalTensor& max_norm_tensor, double eps,
                                            const OptionalTensor& accumulate) {
  check_pass("unscale_with_stats_", grads, scale, divisor, user_scale, norm_type, max_norm,
             max_norm_tensor, eps, accumulate, /*in_place=*/true);
  check_disjoint("unscale_with_stats_", grads);
  const BelowAutograd guard;
  if (has_sparse(grads)) {
    return to_tuple(unscale_with_stats_(
        values_to_write(grads), scale,
        options_of(divisor, user_scale, norm_type, max_norm, max_norm_tensor, eps, accumulate)));
  }
  bump_versions(grads);
  const ScalingTensors scaling =
      make_scaling(scale, divisor, user_scale, real_type(scale.device()));
  const ClipTensors rule = make_clip_rule(max_norm, max_norm_tensor, eps, scaling.scale.options());
  const at::Tensor sums = unscale_and_sum(grads, scaling, norm_type, std::nullopt);
  return finish_by_torch(join_earlier(sums, accumulate), norm_type, scaling, rule);
}

StatsAndFactors unscale_clamp_by_torch(at::TensorList grads, const at::Tensor& scale,
                                       double clip_value, const OptionalTensor& divisor,
                                       const OptionalTensor& user_scale) {
  check_unscale_clamp(grads, scale, clip_value, divisor, user_scale);
  check_disjoint("unscale_clamp_", grads);
  const BelowAutograd guard;
  if (has_sparse(grads)) {
    return to_tuple(unscale_clamp_(values_to_write(grads), scale, clip_value, divisor, user_scale));
  }
  bump_versions(grads);
  constexpr double kNormType = 2.0;
  const ScalingTensors scaling =
      make_scaling(scale, divisor, user_scale, real_type(scale.device()));
  const at::Tensor sums = unscale_and_sum(grads, scaling, kNormType, clip_value);
  return finish_by_torch(sums, kNormType, scaling, ClipTensors{std::nullopt, 0.0});
}

void scale_grads_by_torch(at::TensorList grads, const at::Tensor& factor,
                          const at::Tensor& found_inf) {
  check_scale_grads(grads, factor, found_inf);
  check_disjoint("scale_grads_", grads);
  const BelowAutograd guard;
  if (has_sparse(grads)) {
    scale_grads_(values_to_write(grads), factor, found_inf);
    return;
  }
  bump_versions(grads);
  const at::Tensor skip = (factor == 1).logical_or(found_inf != 0).reshape({});
  for (const at::Tensor& grad : grads) {
    const at::Tensor values = as_real(grad);
    const at::Tensor product = product_of(values, factor.reshape({})).to(values.scalar_type());
    values.copy_(at::where(skip, values, product));
  }
}

at::Tensor find_nonfinite_by_torch(at::TensorList grads) {
  check_find_nonfinite(grads);
  const BelowAutograd guard;
  if (has_sparse(grads)) {
    return find_nonfinite(values_to_read(grads));
  }
  std::vector<at::Tensor> rows;
  rows.reserve(grads.size());
  for (const at::Tensor& grad : grads) {
    rows.push_back(find_nonfinite_in(grad));
  }
  return rows.empty() ? at::empty({0, 3}, at::kLong) : at::stack(rows);
}

at::Tensor grad_norms_by_torch(at::TensorList grads, const at::Tensor& scale, double norm_type) {
  check_grad_norms(grads, scale, norm_type);
  const BelowAutograd guard;
  if (has_sparse(grads)) {
    return grad_norms(values_to_read(grads), scale, norm_type);
  }
  const at::Tensor factor =
      norm_factor(make_scaling(scale, std::nullopt, std::nullopt, real_type(scale.device())));
  std::vector<at::Tensor> norms;
  norms.reserve(grads.size());
  for (const at::Tensor& grad : grads) {
    norms.push_back(norm_of(grad, factor, norm_type).to(at::kFloat));
  }
  return norms.empty() ? at::empty({0}, scale.options()) : at::stack(norms);
}

StatsAndFactors merge_stats_by_torch(at::TensorList stats, double norm_type,
                                     std::optional<double> max_norm,
                                     const OptionalTensor& max_norm_tensor, double eps) {
  check_merge(stats, norm_type, max_norm, max_norm_tensor, eps);
  const BelowAutograd guard;
  const ClipTensors rule = make_clip_rule(max_norm, max_norm_tensor, eps, stats.front().options());
  return conclude_merged(stats, norm_type, rule);
}

at::Tensor step_factors_by_torch(const at::Tensor& found_inf, const OptionalTensor& scale,
                                 const OptionalTensor& divisor, const OptionalTensor& user_scale,
                                 const OptionalTensor& clip_coefficient) {
  check_step_factors(found_inf, scale, divisor, user_scale, clip_coefficient);
  const BelowAutograd guard;
  const at::ScalarType real = real_type(found_inf.device());
  const at::Tensor one = at::ones_like(found_inf);
  const ScalingTensors scaling = make_scaling(scale.value_or(one), divisor, user_scale, real);
  const at::Tensor coefficient = clip_coefficient.value_or(one).reshape({}).to(real);
  return conclude_step(found_inf, scaling, coefficient);
}

TORCH_LIBRARY_IMPL(ampscaler, CompositeExplicitAutograd, library) {
  library.impl("grad_stats", static_cast<GradStatsFunction*>(&grad_stats_by_torch));
  library.impl("unscale_with_stats_",
               static_cast<GradStatsFunction*>(&unscale_with_stats_by_torch));
  library.impl("unscale_clamp_", static_cast<UnscaleClampFunction*>(&unscale_clamp_by_torch));
  library.impl("scale_grads_", static_cast<ScaleGradsFunction*>(&scale_grads_by_torch));
  library.impl("find_nonfinite", static_cast<FindNonfiniteFunction*>(&find_nonfinite_by_torch));
  library.impl("grad_norms", static_cast<GradNormsFunction*>(&grad_norms_by_torch));
  library.impl("merge_stats", static_cast<MergeStatsFunction*>(&merge_stats_by_torch));
  library.impl("step_factors", static_cast<StepFactorsFunction*>(&step_factors_by_torch));
}

}  // namespace ampscaler::ops
