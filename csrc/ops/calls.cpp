// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Typed callers of the operators: how the rest of the library reaches the kernels.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_amp_update_scale.h>

#include "ampscaler/ops.h"
#include "core/grad_stats.h"
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

GradStats to_struct(const StatsAndFactors& result) {
  return {std::get<0>(result), std::get<1>(result)};
}

// Below autograd for the reasons that unscale_() names.
GradStats call_pass(const c10::TypedOperatorHandle<GradStatsFunction>& operation,
                    at::TensorList grads, const at::Tensor& scale,
                    const GradStatsOptions& options) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return to_struct(operation.call(grads, scale, options.divisor, options.user_scale,
                                  options.norm_type, options.max_norm, options.max_norm_tensor,
                                  options.eps, options.accumulate));
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

GradStats grad_stats(at::TensorList grads, const at::Tensor& scale,
                     const GradStatsOptions& options) {
  static const auto operation = find("ampscaler::grad_stats").typed<GradStatsFunction>();
  return call_pass(operation, grads, scale, options);
}

GradStats unscale_with_stats_(at::TensorList grads, const at::Tensor& scale,
                              const GradStatsOptions& options) {
  static const auto operation = find("ampscaler::unscale_with_stats_").typed<GradStatsFunction>();
  return call_pass(operation, grads, scale, options);
}

GradStats unscale_clamp_(at::TensorList grads, const at::Tensor& scale, double clip_value,
                         const std::optional<at::Tensor>& divisor,
                         const std::optional<at::Tensor>& user_scale) {
  static const auto operation = find("ampscaler::unscale_clamp_").typed<UnscaleClampFunction>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return to_struct(operation.call(grads, scale, clip_value, divisor, user_scale));
}

void scale_grads_(at::TensorList grads, const at::Tensor& factor, const at::Tensor& found_inf) {
  static const auto operation = find("ampscaler::scale_grads_").typed<ScaleGradsFunction>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  operation.call(grads, factor, found_inf);
}

at::Tensor find_nonfinite(at::TensorList grads) {
  static const auto operation = find("ampscaler::find_nonfinite").typed<FindNonfiniteFunction>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return operation.call(grads);
}

at::Tensor grad_norms(at::TensorList grads, const at::Tensor& scale, double norm_type) {
  static const auto operation = find("ampscaler::grad_norms").typed<GradNormsFunction>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return operation.call(grads, scale, norm_type);
}

GradStats merge_stats(at::TensorList stats, const GradStatsOptions& options) {
  static const auto operation = find("ampscaler::merge_stats").typed<MergeStatsFunction>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return to_struct(operation.call(stats, options.norm_type, options.max_norm,
                                  options.max_norm_tensor, options.eps));
}

at::Tensor step_factors(const at::Tensor& found_inf, const std::optional<at::Tensor>& scale,
                        const std::optional<at::Tensor>& divisor,
                        const std::optional<at::Tensor>& user_scale,
                        const std::optional<at::Tensor>& clip_coefficient) {
  static const auto operation = find("ampscaler::step_factors").typed<StepFactorsFunction>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return operation.call(found_inf, scale, divisor, user_scale, clip_coefficient);
}

std::vector<std::string> stats_names() {
  return {std::begin(core::kStatsNames), std::end(core::kStatsNames)};
}

std::vector<std::string> factor_names() {
  return {std::begin(core::kFactorNames), std::end(core::kFactorNames)};
}

bool has_unscale_kernel(c10::DeviceType device_type) { return has_kernel(kUnscale, device_type); }

}  // namespace ampscaler::ops
