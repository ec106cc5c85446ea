// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CPU backends of the passes that end in statistics: `grad_stats`, `unscale_with_stats_`,
// `unscale_clamp_`. One read of every gradient, and one write by those that unscale.

#include <cstring>

#include <ATen/EmptyTensor.h>
#include <torch/library.h>

#include "kernels/cpu/collect.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/scalars.h"
#include "ops/gradient_plan.h"
#include "ops/pass_checks.h"
#include "ops/signatures.h"

namespace ampscaler::cpu {
namespace {

core::GradSums read_pass(at::TensorList grads, double norm_type) {
  const KernelTable& table = kernels();
  const ops::GradientPlan plan(grads, ops::Access::kRead);
  return collect(plan.units(), norm_type,
                 [&](const core::Unit& unit, std::uint64_t next, UnitStats* stats) {
                   if (next != 0 && unit.elements == core::unit_elements(unit.dtype)) {
                     table.whole_unit_stats[unit.dtype](memory_of(unit), as_pointer(next), stats);
                     return;
                   }
                   table.stats[unit.dtype](memory_of(unit), unit.elements, stats);
                 });
}

// An inverse of exactly 1 leaves the values, so nothing is written.
core::GradSums unscale_pass(at::TensorList grads, double norm_type, float inverse) {
  if (inverse == 1.0F) {
    return read_pass(grads, norm_type);
  }
  const KernelTable& table = kernels();
  const ops::GradientPlan plan(grads, ops::Access::kWrite);
  const core::GradSums sums = collect(
      plan.units(), norm_type,
      [&](const core::Unit& unit, std::uint64_t /*next*/, UnitStats* stats) {
        table.unscale_with_stats[unit.dtype](memory_of(unit), unit.elements, inverse, stats);
      });
  plan.copy_back();
  return sums;
}

core::GradSums clamp_pass(at::TensorList grads, float inverse, double clip_value) {
  const KernelTable& table = kernels();
  const ops::GradientPlan plan(grads, ops::Access::kWrite);
  const core::GradSums sums = collect(
      plan.units(), /*norm_type=*/2.0,
      [&](const core::Unit& unit, std::uint64_t /*next*/, UnitStats* stats) {
        table.unscale_clamp[unit.dtype](memory_of(unit), unit.elements, inverse, clip_value, stats);
      });
  plan.copy_back();
  return sums;
}

// The gradients of earlier calls join in, and those of this call are left for later ones.
void join_earlier(core::GradSums& sums, const at::Tensor& accumulate) {
  core::GradSums earlier;
  std::memcpy(&earlier, accumulate.const_data_ptr(), sizeof(earlier));
  core::merge(sums, earlier);
  core::normalise(sums.limbs);
  ops::bump_version(accumulate);
  std::memcpy(accumulate.mutable_data_ptr(), &sums, sizeof(sums));
}

ops::StatsAndFactors results(core::GradSums& sums, double norm_type,
                             const core::GradScaling& scaling, const core::ClipRule& rule) {
  at::Tensor stats = at::detail::empty_cpu({core::kStatsSlots}, at::kDouble);
  at::Tensor factors = at::detail::empty_cpu({core::kFactorSlots}, at::kFloat);
  core::finish(sums, norm_type, scaling, rule, stats.mutable_data_ptr<double>(),
               factors.mutable_data_ptr<float>());
  return {std::move(stats), std::move(factors)};
}

ops::StatsAndFactors grad_stats(at::TensorList grads, const at::Tensor& scale,
                                const ops::OptionalTensor& divisor,
                                const ops::OptionalTensor& user_scale, double norm_type,
                                std::optional<double> max_norm,
                                const ops::OptionalTensor& max_norm_tensor, double eps,
                                const ops::OptionalTensor& accumulate) {
  ops::check_pass("grad_stats", grads, scale, divisor, user_scale, norm_type, max_norm,
                  max_norm_tensor, eps, accumulate, /*in_place=*/false);
  ops::check_disjoint("grad_stats", grads);
  core::GradSums sums = read_pass(grads, norm_type);
  if (accumulate.has_value()) {
    join_earlier(sums, *accumulate);
  }
  return results(sums, norm_type, grad_scaling(scale, divisor, user_scale),
                 clip_rule(max_norm, max_norm_tensor, eps));
}

ops::StatsAndFactors unscale_with_stats(at::TensorList grads, const at::Tensor& scale,
                                        const ops::OptionalTensor& divisor,
                                        const ops::OptionalTensor& user_scale, double norm_type,
                                        std::optional<double> max_norm,
                                        const ops::OptionalTensor& max_norm_tensor, double eps,
                                        const ops::OptionalTensor& accumulate) {
  ops::check_pass("unscale_with_stats_", grads, scale, divisor, user_scale, norm_type, max_norm,
                  max_norm_tensor, eps, accumulate, /*in_place=*/true);
  ops::check_disjoint("unscale_with_stats_", grads);
  const core::GradScaling scaling = grad_scaling(scale, divisor, user_scale);
  const core::ClipRule rule = clip_rule(max_norm, max_norm_tensor, eps);
  ops::bump_versions(grads);
  core::GradSums sums = unscale_pass(grads, norm_type, core::inverse_scale(scaling));
  if (accumulate.has_value()) {
    join_earlier(sums, *accumulate);
  }
  return results(sums, norm_type, scaling, rule);
}

ops::StatsAndFactors unscale_clamp(at::TensorList grads, const at::Tensor& scale, double clip_value,
                                   const ops::OptionalTensor& divisor,
                                   const ops::OptionalTensor& user_scale) {
  ops::check_unscale_clamp(grads, scale, clip_value, divisor, user_scale);
  ops::check_disjoint("unscale_clamp_", grads);
  const core::GradScaling scaling = grad_scaling(scale, divisor, user_scale);
  ops::bump_versions(grads);
  core::GradSums sums = clamp_pass(grads, core::inverse_scale(scaling), clip_value);
  return results(sums, /*norm_type=*/2.0, scaling, core::ClipRule());
}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, CPU, library) {
  library.impl("grad_stats", static_cast<ops::GradStatsFunction*>(&grad_stats));
  library.impl("unscale_with_stats_", static_cast<ops::GradStatsFunction*>(&unscale_with_stats));
  library.impl("unscale_clamp_", static_cast<ops::UnscaleClampFunction*>(&unscale_clamp));
}

}  // namespace ampscaler::cpu
