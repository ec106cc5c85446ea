// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The clips of AmpScaler, and the divisor: what of scale and coefficient is written into gradients, and
// what is left to the optimizer's step.

#include <limits>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>

#include "ampscaler/amp_scaler.h"
#include "ampscaler/gradient_pass.h"
#include "core/clip.h"
#include "ops/device_copy.h"
#include "optim/torch_optimizer.h"
#include "scaler/amp_scaler_impl.h"
#include "scaler/gradients.h"

namespace ampscaler {
namespace {

constexpr const char* kClipNorm = "clip_grad_norm_";
constexpr const char* kClipValue = "clip_grad_value_";
constexpr const char* kSetDivisor = "set_grad_divisor";

// Infinity is no limit: then there is no second pass to prepare.
void set_limit(ops::GradStatsOptions& options, const MaxNorm& max_norm) {
  if (max_norm.tensor()) {
    TORCH_CHECK_VALUE(max_norm.tensor()->defined(), "ampscaler::", kClipNorm,
                      ": max_norm: expected a number or a tensor, got an undefined tensor.");
    options.max_norm_tensor = max_norm.tensor();
  } else if (max_norm.value() != std::numeric_limits<double>::infinity()) {
    options.max_norm = max_norm.value();
  }
}

bool is_real_scalar(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.numel() == 1 &&
         (at::isFloatingType(tensor.scalar_type()) ||
          at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false));
}

}  // namespace

void AmpScaler::Impl::check_may_clip(const char* method, const JointPass::Member& member,
                                     const PassTarget& target, bool by_optimizer) const {
  TORCH_CHECK(core::may_clip(member.entry.stage), method, "() is being called after step().");
  TORCH_CHECK_VALUE(may_clip_fp16(options.fp16_grads(), target.scaled, by_optimizer) ||
                        !has_half_gradients(target.gradients),
                    "Attempting to unscale FP16 gradients.");
}

GradientWrite AmpScaler::Impl::write_of(const JointPass::Member& member,
                                        const PassTarget& target) const {
  const bool amp_aware = options.enabled() && member.amp_aware;
  const bool scale_is_one =
      options.policy().min_scale() == 1.0 && options.policy().max_scale() == 1.0;
  return clip_write(target, amp_aware, amp_aware && member.optimizer.adapter.folds_clip(),
                    scale_is_one);
}

void AmpScaler::Impl::record_clip(JointPass& pass, const PassResult& result, bool limited) {
  for (std::size_t i = 0; i < pass.members.size(); ++i) {
    const PassTarget& target = pass.targets[i];
    if (target.gradients.lists().empty()) {
      continue;  // as if it had not taken part
    }
    OptimizerEntry& entry = pass.members[i].entry;
    entry.record(result.found_inf_per_device[i]);
    // Its gradients are not clipped if those of another member are not finite.
    if (pass.members.size() > 1) {
      entry.record({{scale.device(), result.found_inf.clone()}});
    }
    if (target.write == GradientWrite::kUnscale || target.write == GradientWrite::kUnscaleAndClip) {
      entry.stage = core::Stage::kUnscaled;
      entry.scaled = false;
    }
    if (target.write == GradientWrite::kNothing && limited) {
      entry.clip_coefficient = result.clip_coefficients[i];
    }
    entries.store(pass.members[i].optimizer, entry);
  }
}

at::Tensor AmpScaler::clip_grad_norm_(const OptimizerAdapters& optimizers, const MaxNorm& max_norm,
                                      double norm_type, double eps) {
  const ExclusiveUse use(impl().user);
  ops::GradStatsOptions options;
  options.divisor = impl().divisor;
  options.norm_type = norm_type;
  options.eps = eps;
  set_limit(options, max_norm);
  JointPass pass = impl().look_at(kClipNorm, optimizers);
  for (std::size_t i = 0; i < pass.members.size(); ++i) {
    const JointPass::Member& member = pass.members[i];
    impl().check_may_clip(kClipNorm, member, pass.targets[i], /*by_optimizer=*/member.amp_aware);
    pass.targets[i].write = impl().write_of(member, pass.targets[i]);
  }
  const PassResult result =
      run_gradient_pass(kClipNorm, pass.targets, impl().scale_for(pass.targets), options);
  if (is_enabled()) {
    impl().record_clip(pass, result, options.max_norm || options.max_norm_tensor);
  }
  return result.norm;
}

at::Tensor AmpScaler::clip_grad_norm_(const Optimizers& optimizers, const MaxNorm& max_norm,
                                      double norm_type, double eps) {
  return clip_grad_norm_(TorchOptimizers(optimizers).adapters(), max_norm, norm_type, eps);
}

at::Tensor AmpScaler::clip_grad_norm_(OptimizerAdapter& optimizer, const MaxNorm& max_norm,
                                      double norm_type, double eps) {
  return clip_grad_norm_(OptimizerAdapters{optimizer}, max_norm, norm_type, eps);
}

at::Tensor AmpScaler::clip_grad_norm_(torch::optim::Optimizer& optimizer, const MaxNorm& max_norm,
                                      double norm_type, double eps) {
  return clip_grad_norm_(Optimizers{optimizer}, max_norm, norm_type, eps);
}

void AmpScaler::clip_grad_value_(OptimizerAdapter& optimizer, double clip_value) {
  TORCH_CHECK_VALUE(clip_value >= 0.0, "ampscaler::", kClipValue,
                    ": clip_value: expected a number >= 0, got ", clip_value, ".");
  const ExclusiveUse use(impl().user);
  JointPass pass = impl().look_at(kClipValue, {optimizer});
  const JointPass::Member& member = pass.members.front();
  const PassTarget& target = pass.targets.front();
  impl().check_may_clip(kClipValue, member, target, /*by_optimizer=*/false);
  if (target.gradients.lists().empty()) {
    return;
  }
  const std::vector<DeviceFoundInf> found_inf =
      clamp_gradients(target, impl().scale_for(pass.targets), impl().divisor, clip_value);
  if (is_enabled()) {
    OptimizerEntry entry = member.entry;
    entry.record(found_inf);
    entry.stage = core::Stage::kUnscaled;
    entry.scaled = false;
    entry.clip_coefficient.reset();
    impl().entries.store(member.optimizer, entry);
  }
}

void AmpScaler::clip_grad_value_(torch::optim::Optimizer& optimizer, double clip_value) {
  TorchOptimizer adapter(optimizer);
  clip_grad_value_(adapter, clip_value);
}

void AmpScaler::Impl::check_may_set_divisor() const {
  TORCH_CHECK(options.enabled(), kSetDivisor,
              "() on a disabled scaler, which does not divide gradients.");
  TORCH_CHECK(!entries.has_checks(), kSetDivisor,
              "() is being called after gradients were unscaled or checked since the last "
              "update().");
}

void AmpScaler::set_grad_divisor(double divisor) {
  const ExclusiveUse use(impl().user);
  TORCH_CHECK_VALUE(core::is_valid_divisor(divisor), kSetDivisor,
                    ": divisor: expected a positive finite number, got ", divisor, ".");
  impl().check_may_set_divisor();
  const at::Device device =
      impl().scale.defined() ? impl().scale.device() : impl().options.device();
  impl().divisor = at::full({}, divisor, at::dtype(at::kDouble).device(device));
}

void AmpScaler::set_grad_divisor(const at::Tensor& divisor) {
  const ExclusiveUse use(impl().user);
  TORCH_CHECK_VALUE(is_real_scalar(divisor), kSetDivisor,
                    ": divisor: expected a number or a tensor of real numbers with 1 element, got ",
                    divisor.defined() ? c10::str(divisor.toString(), divisor.sizes()) : "nothing",
                    ".");
  impl().check_may_set_divisor();
  const c10::AutoGradMode no_grad(false);
  impl().divisor = divisor.detach().clone();
}

}  // namespace ampscaler
