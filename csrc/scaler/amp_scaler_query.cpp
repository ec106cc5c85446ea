// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// What AmpScaler says about gradients without changing anything: norm, finiteness, whether they are
// scaled.

#include <unordered_set>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include "ampscaler/amp_scaler.h"
#include "optim/torch_optimizer.h"
#include "scaler/amp_scaler_impl.h"
#include "scaler/gradients.h"
#include "scaler/host_read.h"

namespace ampscaler {
namespace {

// What gradients are still multiplied by after a step that leaves true ones unless it was skipped.
std::optional<at::Tensor> left_by_step(const StepFactors& factors) {
  if (!factors.grad_scale) {
    return std::nullopt;
  }
  return at::where(factors.found_inf.ne(0.0), *factors.grad_scale,
                   at::ones_like(*factors.grad_scale));
}

void check_distinct(const char* method, const std::vector<JointPass::Member>& members) {
  std::unordered_set<const void*> seen;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const bool is_new = seen.insert(members[i].optimizer.adapter.identity()).second;
    TORCH_CHECK_VALUE(is_new, method, ": optimizers: expected different ones, got number ", i,
                      " twice.");
  }
}

// Within one optimizer a gradient that occurs twice counts once; but two would each unscale it.
// NOLINTNEXTLINE(readability-function-size): the macro nests deeply
void check_no_common_gradient(const char* method, const std::vector<PassTarget>& targets) {
  if (targets.size() < 2) {
    return;
  }
  std::unordered_set<const void*> seen;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    for_each_gradient(targets[i].gradients, [&](const at::Tensor& gradient) {
      TORCH_CHECK_VALUE(seen.insert(gradient.unsafeGetTensorImpl()).second, method,
                        ": optimizers: expected gradients of their own, got optimizer ", i,
                        " with one of another optimizer.");
    });
  }
}

}  // namespace

PassTarget AmpScaler::Impl::target_of(const char* method, const JointPass::Member& member) const {
  const OptimizerEntry& entry = member.entry;
  PassTarget target;
  target.gradients = collect_gradients(method, member.optimizer.parameters);
  target.scaled = options.enabled() && entry.scaled && !entry.step_factors;
  if (entry.step_factors) {
    target.user_scale = left_by_step(*entry.step_factors);
  } else {
    target.user_scale =
        member.amp_aware ? member.optimizer.adapter.user_grad_scale() : std::nullopt;
    target.clip_coefficient = entry.clip_coefficient;
  }
  return target;
}

JointPass AmpScaler::Impl::look_at(const char* method, const OptimizerAdapters& optimizers) const {
  if (options.enabled()) {
    check_initialised(method);
  }
  JointPass pass;
  pass.members.reserve(optimizers.size());
  pass.targets.reserve(optimizers.size());
  for (OptimizerAdapter& adapter : optimizers) {
    const Participant optimizer(adapter);
    pass.members.push_back({optimizer, entries.find(optimizer), adapter.is_amp_aware()});
    pass.targets.push_back(target_of(method, pass.members.back()));
  }
  check_distinct(method, pass.members);
  check_no_common_gradient(method, pass.targets);
  return pass;
}

at::Tensor AmpScaler::Impl::scale_for(const std::vector<PassTarget>& targets) const {
  if (options.enabled()) {
    return scale;
  }
  at::Device device = at::kCPU;
  for (const PassTarget& target : targets) {
    if (!target.gradients.lists().empty()) {
      device = target.gradients.lists().front().device;
      break;
    }
  }
  return at::ones({}, at::dtype(at::kFloat).device(device));
}

at::Tensor AmpScaler::grad_norm(const OptimizerAdapters& optimizers, double norm_type) const {
  const ExclusiveUse use(impl().user);
  const JointPass pass = impl().look_at("grad_norm", optimizers);
  ops::GradStatsOptions options;
  options.divisor = impl().divisor;
  options.norm_type = norm_type;
  return run_gradient_pass("grad_norm", pass.targets, impl().scale_for(pass.targets), options).norm;
}

at::Tensor AmpScaler::grad_norm(const Optimizers& optimizers, double norm_type) const {
  return grad_norm(TorchOptimizers(optimizers).adapters(), norm_type);
}

at::Tensor AmpScaler::grad_norm(OptimizerAdapter& optimizer, double norm_type) const {
  return grad_norm(OptimizerAdapters{optimizer}, norm_type);
}

at::Tensor AmpScaler::grad_norm(torch::optim::Optimizer& optimizer, double norm_type) const {
  return grad_norm(Optimizers{optimizer}, norm_type);
}

at::Tensor AmpScaler::is_finite(OptimizerAdapter& optimizer) const {
  const ExclusiveUse use(impl().user);
  if (is_enabled()) {
    impl().check_initialised("is_finite");
  }
  const Participant participant(optimizer);
  const OptimizerEntry entry = impl().entries.find(participant);
  if (!entry.found_inf_per_device.empty()) {
    return combine_found_inf(entry.found_inf_per_device, impl().scale.device()).eq(0.0);
  }
  const std::vector<PassTarget> targets{
      impl().target_of("is_finite", {participant, entry, optimizer.is_amp_aware()})};
  ops::GradStatsOptions options;
  options.divisor = impl().divisor;
  return run_gradient_pass("is_finite", targets, impl().scale_for(targets), options)
      .found_inf.eq(0.0);
}

at::Tensor AmpScaler::is_finite(torch::optim::Optimizer& optimizer) const {
  TorchOptimizer adapter(optimizer);
  return is_finite(adapter);
}

bool AmpScaler::grads_are_scaled(OptimizerAdapter& optimizer) const {
  const ExclusiveUse use(impl().user);
  if (!is_enabled() || !impl().scale.defined()) {
    return false;
  }
  const OptimizerEntry entry = impl().entries.find(Participant(optimizer));
  return entry.scaled && (!entry.step_factors || read_scalar(entry.step_factors->found_inf) != 0.0);
}

bool AmpScaler::grads_are_scaled(torch::optim::Optimizer& optimizer) const {
  TorchOptimizer adapter(optimizer);
  return grads_are_scaled(adapter);
}

}  // namespace ampscaler
