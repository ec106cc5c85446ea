// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// One iteration of AmpScaler: scale, unscale_, step, update. Numbers and saved state are in
// amp_scaler_state.cpp.

#include "ampscaler/amp_scaler.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "ampscaler/errors.h"
#include "ampscaler/gradient_groups.h"
#include "ampscaler/ops.h"
#include "core/numeric_options.h"
#include "ops/device_copy.h"
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

std::vector<DeviceFoundInf> AmpScaler::Impl::check_only(const Participant& optimizer) const {
  return multiply_gradients(optimizer, at::ones({}, scale.options()), /*allow_half=*/true);
}

std::vector<DeviceFoundInf> AmpScaler::Impl::divide_by_scale(const Participant& optimizer) const {
  // float(1 / double(scale)): the inverse is formed in double and rounded once, as torch does.
  const at::Tensor inv_scale = scale.to(at::kDouble).reciprocal().to(at::kFloat);
  return multiply_gradients(optimizer, inv_scale, /*allow_half=*/false);
}

std::vector<DeviceFoundInf> AmpScaler::Impl::multiply_gradients(const Participant& optimizer,
                                                                const at::Tensor& factor,
                                                                bool allow_half) const {
  const c10::AutoGradMode no_grad(false);
  const std::vector<at::Tensor> parameters = parameters_with_gradient(optimizer.parameters);
  check_gradients(parameters, allow_half);
  return group_gradients(parameters).unscale_(factor, at::zeros({}, scale.options()));
}

OptimizerEntry AmpScaler::Impl::unscale(const Participant& optimizer) const {
  OptimizerEntry entry = entries.find(optimizer);
  const char* refusal = core::unscale_refusal(entry.stage);
  TORCH_CHECK(refusal == nullptr, refusal);
  entry.found_inf_per_device = divide_by_scale(optimizer);
  entry.stage = core::Stage::kUnscaled;
  return entry;
}

StepResult AmpScaler::Impl::step_ordinary(Participant& optimizer) {
  OptimizerEntry entry = entries.find(optimizer);
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
  std::optional<at::Tensor> grad_scale;
  if (entry.stage == core::Stage::kReady) {
    entry.found_inf_per_device = check_only(optimizer);
    grad_scale = scale.clone();  // update() changes the scale in place
  } else {
    check_recorded(entry);
  }
  const at::Tensor found_inf = combine_found_inf(entry.found_inf_per_device, scale.device());
  const std::int64_t iteration_before = entries.iteration();
  const at::Tensor value = optimizer.adapter.step_amp(grad_scale, found_inf);
  entries.store_stepped(optimizer, entry, iteration_before);
  return {found_inf, value};
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
  return ops::on_device(impl().scale, device);
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
  impl().entries.end_iteration();
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
    impl().entries.end_iteration();
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
  impl().entries.end_iteration();
}

}  // namespace ampscaler
