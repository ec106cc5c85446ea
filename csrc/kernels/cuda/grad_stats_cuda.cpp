// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CUDA backends of the passes that end in statistics: `grad_stats`, `unscale_with_stats_`,
// `unscale_clamp_`. One launch each for up to 2,040 gradients, which also draws all conclusions.

#include <limits>

#include "kernels/cuda/backends.h"
#include "kernels/cuda/device_call.h"
#include "kernels/cuda/kernel_scalar.h"
#include "kernels/cuda/launch.h"
#include "ops/gradient_plan.h"
#include "ops/pass_checks.h"

namespace ampscaler::cuda {
namespace {

using LaunchPass = cudaError_t(const core::UnitPlan& plan, const PassArguments& arguments,
                               int multiprocessors, cudaStream_t stream);

// A pass with everything but the gradients, as addresses, and what these are of.
class Pass {
 public:
  Pass(const DeviceCall& call, const at::Tensor& scale, const ops::OptionalTensor& divisor,
       const ops::OptionalTensor& user_scale)
      : call_(call),
        stats_(call.empty({core::kStatsSlots}, at::kDouble)),
        factors_(call.empty({core::kFactorSlots}, at::kFloat)) {
    arguments_.scale = scale.const_data_ptr<float>();
    arguments_.stats = stats_.mutable_data_ptr<double>();
    arguments_.factors = factors_.mutable_data_ptr<float>();
    set_scalar(kDivisor, divisor);
    set_scalar(kUserScale, user_scale);
  }

  void set_norm(double norm_type, std::optional<double> max_norm,
                const ops::OptionalTensor& max_norm_tensor, double eps) {
    arguments_.norm_type = norm_type;
    arguments_.eps = eps;
    set_limit(max_norm.value_or(std::numeric_limits<double>::infinity()));
    set_scalar(kMaxNorm, max_norm_tensor);
  }

  void set_limit(double limit) { arguments_.limit = limit; }

  void set_accumulate(const ops::OptionalTensor& accumulate) {
    if (accumulate.has_value()) {
      ops::bump_version(*accumulate);
      arguments_.accumulate = static_cast<core::GradSums*>(accumulate->mutable_data_ptr());
    }
  }

  ops::StatsAndFactors run(LaunchPass& launch, const core::UnitPlan& plan) {
    with_workspace(call_, [&](Workspace* workspace) {
      arguments_.workspace = workspace;
      return launch(plan, arguments_, call_.multiprocessors(), call_.stream());
    });
    return {stats_, factors_};
  }

 private:
  void set_scalar(ScalarArgument which, const ops::OptionalTensor& given) {
    scalars_[which] = KernelScalar(given);
    const DeviceScalar scalar = scalars_[which].get();
    arguments_.scalars[which] = scalar.address;
    arguments_.dtypes[which] = scalar.dtype;
  }

  const DeviceCall& call_;
  PassArguments arguments_;
  KernelScalar scalars_[kScalarArguments];
  at::Tensor stats_;
  at::Tensor factors_;
};

}  // namespace

ops::StatsAndFactors grad_stats(at::TensorList grads, const at::Tensor& scale,
                                const ops::OptionalTensor& divisor,
                                const ops::OptionalTensor& user_scale, double norm_type,
                                std::optional<double> max_norm,
                                const ops::OptionalTensor& max_norm_tensor, double eps,
                                const ops::OptionalTensor& accumulate) {
  ops::check_pass("grad_stats", grads, scale, divisor, user_scale, norm_type, max_norm,
                  max_norm_tensor, eps, accumulate, /*in_place=*/false);
  ops::check_disjoint("grad_stats", grads);
  const DeviceCall call(scale.device());
  const ops::GradientPlan plan(grads, ops::Access::kRead);
  Pass pass(call, scale, divisor, user_scale);
  pass.set_norm(norm_type, max_norm, max_norm_tensor, eps);
  pass.set_accumulate(accumulate);
  return pass.run(launch_grad_stats, plan.units());
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
  ops::bump_versions(grads);
  const DeviceCall call(scale.device());
  const ops::GradientPlan plan(grads, ops::Access::kWrite);
  Pass pass(call, scale, divisor, user_scale);
  pass.set_norm(norm_type, max_norm, max_norm_tensor, eps);
  pass.set_accumulate(accumulate);
  ops::StatsAndFactors results = pass.run(launch_unscale_with_stats, plan.units());
  plan.copy_back();
  return results;
}

ops::StatsAndFactors unscale_clamp(at::TensorList grads, const at::Tensor& scale, double clip_value,
                                   const ops::OptionalTensor& divisor,
                                   const ops::OptionalTensor& user_scale) {
  ops::check_unscale_clamp(grads, scale, clip_value, divisor, user_scale);
  ops::check_disjoint("unscale_clamp_", grads);
  ops::bump_versions(grads);
  const DeviceCall call(scale.device());
  const ops::GradientPlan plan(grads, ops::Access::kWrite);
  Pass pass(call, scale, divisor, user_scale);
  pass.set_limit(clip_value);
  ops::StatsAndFactors results = pass.run(launch_unscale_clamp, plan.units());
  plan.copy_back();
  return results;
}

}  // namespace ampscaler::cuda
