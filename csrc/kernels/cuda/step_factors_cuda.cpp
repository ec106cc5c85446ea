// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CUDA backends of `step_factors` and `merge_stats`: one launch each, of one thread.

#include <limits>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/stack.h>

#include "core/step_scalars.h"
#include "kernels/cuda/backends.h"
#include "kernels/cuda/device_call.h"
#include "kernels/cuda/kernel_scalar.h"
#include "kernels/cuda/launch.h"
#include "ops/pass_checks.h"

namespace ampscaler::cuda {
namespace {

StatsVectors vectors_of(at::TensorList stats) {
  StatsVectors table = {};
  for (std::size_t i = 0; i < stats.size(); ++i) {
    table.vectors[i] = {stats[i].const_data_ptr<double>(), stats[i].stride(0)};
  }
  return table;
}

void launch_merge(const DeviceCall& call, at::TensorList stats, const MergeArguments& arguments) {
  if (stats.size() <= kMostStatsVectors) {
    check_launches(launch_merge_stats(vectors_of(stats), arguments, call.stream()));
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor rows = at::stack(stats);
  check_launches(
      launch_merge_stats(core::StatsRows{rows.const_data_ptr<double>()}, arguments, call.stream()));
}

}  // namespace

at::Tensor step_factors(const at::Tensor& found_inf, const ops::OptionalTensor& scale,
                        const ops::OptionalTensor& divisor, const ops::OptionalTensor& user_scale,
                        const ops::OptionalTensor& clip_coefficient) {
  ops::check_step_factors(found_inf, scale, divisor, user_scale, clip_coefficient);
  const DeviceCall call(found_inf.device());
  const KernelScalar given[] = {KernelScalar(scale), KernelScalar(divisor),
                                KernelScalar(user_scale), KernelScalar(clip_coefficient)};
  at::Tensor scalars = call.empty({core::kStepScalars}, at::kFloat);
  const StepArguments arguments = {found_inf.const_data_ptr<float>(),
                                   given[0].get(),
                                   given[1].get(),
                                   given[2].get(),
                                   given[3].get(),
                                   scalars.mutable_data_ptr<float>()};
  check_launches(launch_step_factors(arguments, call.stream()));
  return scalars;
}

ops::StatsAndFactors merge_stats(at::TensorList stats, double norm_type,
                                 std::optional<double> max_norm,
                                 const ops::OptionalTensor& max_norm_tensor, double eps) {
  ops::check_merge(stats, norm_type, max_norm, max_norm_tensor, eps);
  const DeviceCall call(stats.front().device());
  const KernelScalar limit(max_norm_tensor);
  at::Tensor merged = call.empty({core::kStatsSlots}, at::kDouble);
  at::Tensor factors = call.empty({core::kFactorSlots}, at::kFloat);
  MergeArguments arguments;
  arguments.parts = static_cast<std::int64_t>(stats.size());
  arguments.norm_type = norm_type;
  arguments.max_norm = limit.get();
  arguments.limit = max_norm.value_or(std::numeric_limits<double>::infinity());
  arguments.eps = eps;
  arguments.stats = merged.mutable_data_ptr<double>();
  arguments.factors = factors.mutable_data_ptr<float>();
  launch_merge(call, stats, arguments);
  return {std::move(merged), std::move(factors)};
}

}  // namespace ampscaler::cuda
