// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// One iteration of AmpScaler: scale, unscale_, step, update. Clips are in amp_scaler_clip.cpp, queries in
// amp_scaler_query.cpp, numbers and saved state in amp_scaler_state.cpp.

#include "ampscaler/amp_scaler.h"

#include <algorithm>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include "ampscaler/errors.h"
#include "ampscaler/gradient_groups.h"
#include "ampscaler/gradient_pass.h"
#include "ampscaler/ops.h"
#include "core/numeric_options.h"
#include "optim/torch_optimizer.h"
#include "scaler/amp_scaler_impl.h"
#include "scaler/gradients.h"
#include "scaler/host_read.h"
#include "scaler/raise.h"

namespace ampscaler {
namespace {

// An empty record: unscale_() saw no gradient, so those that exist now were never divided.
void check_recorded(const OptimizerEntry& entry) {
  check<AssertionError>(!entry.found_inf_per_device.empty(),
                        "No inf checks were recorded for this optimizer.");
}

}  // namespace

void AmpScaler::Impl::check_initialised(const char* method) const {
  check<AssertionError>(
      scale.defined(),
      c10::str("Attempted ", method,
               " but _scale is None.  This may indicate your script did not use scaler.scale(loss "
               "or outputs) earlier in the iteration."));
}

void AmpScaler::Impl::initialise(c10::Device scale_device) {
  if (!scale.defined()) {
    scale = at::full({}, options.init_scale(), at::dtype(at::kFloat).device(scale_device));
    growth_tracker = at::full({}, init_growth_tracker, at::dtype(at::kInt).device(scale_device));
  }
}

void AmpScaler::Impl::check_writable() const {
  if (scale.is_inference() && !c10::InferenceMode::is_enabled()) {
    scale.unsafeGetTensorImpl()->bump_version();  // throws in torch's words; fill_ writes first
  }
}

std::vector<DeviceFoundInf> AmpScaler::Impl::run_alone(const char* method,
                                                       const PassTarget& target) const {
  ops::GradStatsOptions options;
  options.divisor = divisor;
  return run_gradient_pass(method, {target}, scale, options).found_inf_per_device.front();
}

std::vector<DeviceFoundInf> AmpScaler::Impl::check_gradients_of(
    const Participant& optimizer) const {
  const std::vector<at::Tensor> parameters = parameters_with_gradient(optimizer.parameters);
  check_gradients(parameters, /*allow_half=*/true);
  if (const std::optional<GradientLists> plain = plain_gradients(parameters)) {
    PassTarget target;
    target.gradients = *plain;
    target.user_scale = optimizer.adapter.user_grad_scale();
    return run_alone("step", target);
  }
  return group_gradients(parameters)
      .unscale_(at::ones({}, scale.options()), at::zeros({}, scale.options()));
}

std::vector<DeviceFoundInf> AmpScaler::Impl::divide_by_scale(const Participant& optimizer) const {
  const std::vector<at::Tensor> parameters = parameters_with_gradient(optimizer.parameters);
  check_gradients(parameters, options.fp16_grads() == Fp16Grads::kInPlace);
  if (const std::optional<GradientLists> plain = plain_gradients(parameters)) {
    const KeepVersions versions(*plain);
    PassTarget target;
    target.gradients = *plain;
    target.write = GradientWrite::kUnscale;
    return run_alone("unscale_", target);
  }
  const InverseScale inverse = inverse_scale(scale, divisor);
  return group_gradients(parameters).unscale_(inverse.inv_scale, inverse.found_inf);
}

OptimizerEntry AmpScaler::Impl::unscale(const Participant& optimizer) const {
  OptimizerEntry entry = entries.find(optimizer);
  const char* refusal = core::unscale_refusal(entry.stage);
  TORCH_CHECK(refusal == nullptr, refusal);
  entry.record(divide_by_scale(optimizer));
  entry.stage = core::Stage::kUnscaled;
  entry.scaled = false;
  return entry;
}

StepResult AmpScaler::Impl::step_ordinary(Participant& optimizer) {
  OptimizerEntry entry = entries.find(optimizer);
  TORCH_CHECK(!entry.clip_coefficient.has_value(),
              "step: the gradients were clipped for an optimizer that applies the clip itself, "
              "which this one has ceased to do.");
  if (entry.stage == core::Stage::kReady) {
    entry = unscale(optimizer);
  }
  check_recorded(entry);
  // The gradients are divided now: if the optimizer throws, a retry must not divide them again.
  entries.store(optimizer, entry);
  const std::int64_t iteration_before = entries.iteration();
  const at::Tensor found_inf = combine_found_inf(entry.found_inf_per_device, scale.device());
  const bool skip = read_scalar(found_inf) != 0.0;
  const at::Tensor value = skip ? at::Tensor() : optimizer.adapter.step();
  entries.store_stepped(optimizer, entry, iteration_before);
  return {skip ? StepOutcome::kSkippedNonfinite : StepOutcome::kApplied, found_inf, value};
}

StepResult AmpScaler::Impl::step_amp_aware(Participant& optimizer) {
  OptimizerEntry entry = entries.find(optimizer);
  if (entry.stage == core::Stage::kReady && entry.found_inf_per_device.empty()) {
    if (repeats_a_gradient(optimizer.parameters)) {  // its step would divide it at each mention
      entry = unscale(optimizer);
      entries.store(optimizer, entry);
    } else {
      entry.record(check_gradients_of(optimizer));
    }
  }
  check_recorded(entry);
  const StepFactors factors = step_factors(
      combine_found_inf(entry.found_inf_per_device, scale.device()),
      entry.scaled ? std::optional(scale) : std::nullopt, entry.scaled ? divisor : std::nullopt,
      optimizer.adapter.user_grad_scale(), entry.clip_coefficient);
  // The one decision, for update() too. A copy: an optimizer may write to what it is handed.
  const at::Tensor decision = factors.found_inf.clone();
  entry.found_inf_per_device = {{scale.device(), decision}};
  if (optimizer.adapter.writes_true_gradients()) {
    entry.step_factors = {decision, factors.grad_scale};
  }
  const std::int64_t iteration_before = entries.iteration();
  const at::Tensor value = optimizer.adapter.step_amp(factors.grad_scale, factors.found_inf);
  entries.store_stepped(optimizer, entry, iteration_before);
  return {factors.found_inf, value};
}

void AmpScaler::Impl::end_iteration() {
  entries.end_iteration();
  divisor.reset();
}

AmpScaler::AmpScaler(const AmpScalerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
AmpScaler::~AmpScaler() = default;
AmpScaler::AmpScaler(AmpScaler&& other) noexcept = default;
AmpScaler& AmpScaler::operator=(AmpScaler&& other) noexcept = default;

AmpScaler::Impl& AmpScaler::impl() const {
  TORCH_CHECK(impl_ != nullptr, "AmpScaler: used after it was moved from.");
  return *impl_;
}

at::Tensor AmpScaler::scale(const at::Tensor& outputs) {
  return is_enabled() ? outputs * scale_on(outputs.device()) : outputs;
}

at::Tensor AmpScaler::scale_on(c10::Device device) {
  if (!is_enabled()) {
    return {};
  }
  const ExclusiveUse use(impl().user);
  impl().initialise(device);
  const at::Tensor& scale = impl().scale;
  return scale.device() == device
             ? scale
             : scale.to(scale.options().device(device), /*non_blocking=*/!device.is_cpu());
}

std::vector<at::Tensor> AmpScaler::scale(at::TensorList outputs) {
  if (!is_enabled()) {
    return outputs.vec();
  }
  std::vector<at::Tensor> scaled;
  scaled.reserve(outputs.size());
  // One copy per device, so that a later update() does not disturb the backward passes.
  std::vector<at::Tensor> copies;
  for (const at::Tensor& output : outputs) {
    auto copy = std::ranges::find(copies, output.device(),
                                  [](const at::Tensor& tensor) { return tensor.device(); });
    if (copy == copies.end()) {
      copy = copies.insert(copies.end(), scale_on(output.device()).clone());
    }
    scaled.push_back(output * *copy);
  }
  return scaled;
}

void AmpScaler::unscale_(torch::optim::Optimizer& optimizer) {
  TorchOptimizer adapter(optimizer);
  unscale_(adapter);
}

void AmpScaler::unscale_(OptimizerAdapter& optimizer) {
  if (is_enabled()) {
    const ExclusiveUse use(impl().user);
    impl().check_initialised("unscale_");
    const Participant participant(optimizer);
    impl().entries.store(participant, impl().unscale(participant));
  }
}

StepResult AmpScaler::step(torch::optim::Optimizer& optimizer) {
  TorchOptimizer adapter(optimizer);
  return step(adapter);
}

StepResult AmpScaler::step(OptimizerAdapter& optimizer) {
  if (!is_enabled()) {
    return {StepOutcome::kDisabled, at::Tensor(), optimizer.step()};
  }
  const ExclusiveUse use(impl().user);
  impl().check_initialised("step");
  Participant participant(optimizer);
  const char* refusal = core::step_refusal(impl().entries.find(participant).stage);
  TORCH_CHECK(refusal == nullptr, refusal);
  return optimizer.is_amp_aware() ? impl().step_amp_aware(participant)
                                  : impl().step_ordinary(participant);
}

StepResult AmpScaler::step(torch::optim::Optimizer& optimizer,
                           const std::function<at::Tensor()>& closure) {
  TORCH_CHECK(!is_enabled(), "Closure use is not currently supported if GradScaler is enabled.");
  return {StepOutcome::kDisabled, at::Tensor(), step_with_closure(optimizer, closure)};
}

void AmpScaler::update() {
  if (!is_enabled()) {
    return;
  }
  const ExclusiveUse use(impl().user);
  impl().check_initialised("update");
  const std::vector<DeviceFoundInf> found_inf_per_device = impl().entries.found_inf();
  check<AssertionError>(!found_inf_per_device.empty(),
                        "No inf checks were recorded prior to update.");
  ops::advance_scale_(impl().scale, impl().growth_tracker,
                      combine_found_inf(found_inf_per_device, impl().scale.device()),
                      get_growth_factor(), get_backoff_factor(), get_growth_interval(), policy());
  impl().end_iteration();
}

void AmpScaler::update(double new_scale) {
  if (is_enabled()) {
    const ExclusiveUse use(impl().user);
    impl().check_initialised("update");
    const double clamped = policy().clamp(new_scale);
    TORCH_CHECK(core::fits_float32(clamped),
                "value cannot be converted to type float without overflow");
    impl().check_writable();
    impl().scale.fill_(clamped);
    impl().end_iteration();
  }
}

void AmpScaler::update(const at::Tensor& new_scale) {
  if (!is_enabled()) {
    return;
  }
  const ExclusiveUse use(impl().user);
  impl().check_initialised("update");
  const bool acceptable = new_scale.device().type() == impl().options.device().type() &&
                          new_scale.numel() == 1 && !new_scale.requires_grad();
  check<AssertionError>(
      acceptable,
      "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
      "requires_grad=False.");
  impl().check_writable();
  impl().scale.copy_(policy().clamp(new_scale));
  impl().end_iteration();
}

}  // namespace ampscaler
