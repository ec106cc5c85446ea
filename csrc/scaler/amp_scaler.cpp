// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// One iteration of AmpScaler: scale, unscale_, step, update. Numbers and saved state are in
// amp_scaler_state.cpp.

#include "ampscaler/amp_scaler.h"

#include <algorithm>
#include <unordered_set>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "ampscaler/errors.h"
#include "ampscaler/ops.h"
#include "core/numeric_options.h"
#include "optim/torch_optimizer.h"
#include "scaler/amp_scaler_impl.h"
#include "scaler/host_read.h"
#include "scaler/raise.h"

namespace ampscaler {
namespace {

// Half sparse gradients are coalesced first, for good: duplicates may overflow in their sum. Others
// are unscaled as they are.
at::Tensor dense_part(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.is_sparse()) {
    return gradient;
  }
  if (gradient.scalar_type() == at::kHalf) {
    parameter.mutable_grad() = gradient.coalesce();
  }
  return parameter.grad()._values();
}

bool has_duplicates(std::vector<const void*> keys) {
  std::ranges::sort(keys);
  return std::ranges::adjacent_find(keys) != keys.end();
}

const void* gradient_key(const at::Tensor& parameter) {
  return parameter.grad().unsafeGetTensorImpl();
}

// Parameters that have a gradient, each gradient once: a second mention would divide it twice.
std::vector<at::Tensor> parameters_with_gradient(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> result;
  std::vector<const void*> keys;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.defined() && parameter.grad().defined()) {
      result.push_back(parameter);
      keys.push_back(gradient_key(parameter));
    }
  }
  if (has_duplicates(
          std::move(keys))) {  // rare: hashing in every call would cost more than the kernel
    std::unordered_set<const void*> seen;
    std::erase_if(result, [&](const at::Tensor& parameter) {
      return !seen.insert(gradient_key(parameter)).second;
    });
  }
  return result;
}

// Everything is refused before anything is written.
void check_gradients(const std::vector<at::Tensor>& parameters, bool allow_half) {
  for (const at::Tensor& parameter : parameters) {
    const at::ScalarType dtype = parameter.grad().scalar_type();
    TORCH_CHECK_VALUE(allow_half || dtype != at::kHalf, "Attempting to unscale FP16 gradients.");
    TORCH_CHECK_NOT_IMPLEMENTED(
        at::isFloatingType(dtype),
        "\"_amp_foreach_non_finite_check_and_unscale_cpu\" not implemented for '",
        at::toString(dtype), "'");
  }
}

const void* first_parameter(const Participant& optimizer) {
  return optimizer.parameters.empty() ? nullptr
                                      : optimizer.parameters.front().unsafeGetTensorImpl();
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

OptimizerEntry AmpScaler::Impl::entry_of(const Participant& optimizer) const {
  const auto found = entries.find(optimizer.adapter.identity());
  const void* parameter = first_parameter(optimizer);
  if (found != entries.end() && found->second.first_parameter == parameter) {
    return found->second;
  }
  OptimizerEntry fresh;
  fresh.first_parameter = parameter;
  return fresh;
}

std::vector<DeviceFlag> AmpScaler::Impl::unscale_gradients(const Participant& optimizer,
                                                           bool keep_scaled) const {
  const c10::AutoGradMode no_grad(false);
  const std::vector<at::Tensor> parameters = parameters_with_gradient(optimizer.parameters);
  check_gradients(parameters, /*allow_half=*/keep_scaled);
  GradientGroups groups;
  for (const at::Tensor& parameter : parameters) {
    groups.add(dense_part(parameter));
  }
  // float(1 / double(scale)): the inverse is formed in double and rounded once, as torch does.
  const at::Tensor inv_scale = keep_scaled ? at::full({}, 1.0, scale.options())
                                           : scale.to(at::kDouble).reciprocal().to(at::kFloat);
  return groups.unscale_(inv_scale, at::zeros({}, scale.options()));
}

at::Tensor AmpScaler::Impl::combine(const std::vector<DeviceFlag>& flags) const {
  // The maximum, not torch's sum: fused optimizers skip only when the flag is exactly 1.
  const c10::AutoGradMode no_grad(false);
  if (flags.empty()) {
    return at::zeros({}, scale.options());
  }
  std::vector<at::Tensor> on_scale_device;
  for (const DeviceFlag& flag : flags) {
    on_scale_device.push_back(flag.found_inf.to(scale.options(), /*non_blocking=*/true));
  }
  return on_scale_device.size() == 1 ? on_scale_device.front()
                                     : at::max(at::stack(on_scale_device));
}

OptimizerEntry AmpScaler::Impl::unscale(const Participant& optimizer) const {
  OptimizerEntry entry = entry_of(optimizer);
  const char* refusal = core::unscale_refusal(entry.stage);
  TORCH_CHECK(refusal == nullptr, refusal);
  entry.flags = unscale_gradients(optimizer, /*keep_scaled=*/false);
  entry.stage = core::Stage::kUnscaled;
  return entry;
}

StepResult AmpScaler::Impl::step_ordinary(Participant& optimizer) {
  OptimizerEntry entry = entry_of(optimizer);
  if (entry.stage == core::Stage::kReady) {
    entry = unscale(optimizer);
    entries[optimizer.adapter.identity()] =
        entry;  // the gradients are divided now: a retry must not divide them again
  }
  check<AssertionError>(!entry.flags.empty(), "No inf checks were recorded for this optimizer.");
  const at::Tensor found_inf = combine(entry.flags);
  const bool skip = read_scalar(found_inf) != 0.0;
  const at::Tensor value = skip ? at::Tensor() : optimizer.adapter.step();
  entries[optimizer.adapter.identity()].stage = core::Stage::kStepped;
  return {skip ? StepOutcome::kSkippedNonfinite : StepOutcome::kApplied, found_inf, value};
}

StepResult AmpScaler::Impl::step_amp_aware(Participant& optimizer) {
  OptimizerEntry entry = entry_of(optimizer);
  std::optional<at::Tensor> grad_scale;
  if (entry.stage == core::Stage::kReady) {
    entry.flags = unscale_gradients(optimizer, /*keep_scaled=*/true);
    grad_scale =
        scale.clone();  // the optimizer gets values of its own: update() changes the scale in place
  }
  const at::Tensor found_inf = combine(entry.flags);
  const at::Tensor value = optimizer.adapter.step_amp(grad_scale, found_inf);
  entry.stage = core::Stage::kStepped;
  entries[optimizer.adapter.identity()] = entry;
  return {found_inf, value};
}

AmpScaler::AmpScaler(const AmpScalerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
AmpScaler::~AmpScaler() = default;
AmpScaler::AmpScaler(AmpScaler&& other) noexcept = default;
AmpScaler& AmpScaler::operator=(AmpScaler&& other) noexcept = default;

at::Tensor AmpScaler::scale(const at::Tensor& outputs) {
  return is_enabled() ? outputs * scale_on(outputs.device()) : outputs;
}

at::Tensor AmpScaler::scale_on(c10::Device device) {
  if (!is_enabled()) {
    return {};
  }
  impl_->initialise(device);
  return impl_->scale.to(impl_->scale.options().device(device), /*non_blocking=*/true);
}

std::vector<at::Tensor> AmpScaler::scale(at::TensorList outputs) {
  if (!is_enabled()) {
    return outputs.vec();
  }
  std::vector<at::Tensor> scaled;
  std::vector<at::Tensor>
      copies;  // one per device, so that a later update() does not disturb the backward passes
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
    impl_->check_initialised("unscale_");
    impl_->entries[optimizer.identity()] = impl_->unscale(Participant(optimizer));
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
  impl_->check_initialised("step");
  Participant participant(optimizer);
  const char* refusal = core::step_refusal(impl_->entry_of(participant).stage);
  TORCH_CHECK(refusal == nullptr, refusal);
  return optimizer.is_amp_aware() ? impl_->step_amp_aware(participant)
                                  : impl_->step_ordinary(participant);
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
  impl_->check_initialised("update");
  std::vector<DeviceFlag> flags;
  for (const auto& [identity, entry] : impl_->entries) {
    flags.insert(flags.end(), entry.flags.begin(), entry.flags.end());
  }
  check<AssertionError>(!flags.empty(), "No inf checks were recorded prior to update.");
  ops::update_scale_(impl_->scale, impl_->growth_tracker, impl_->combine(flags),
                     get_growth_factor(), get_backoff_factor(), get_growth_interval());
  impl_->entries.clear();
}

void AmpScaler::update(double new_scale) {
  if (is_enabled()) {
    impl_->check_initialised("update");
    TORCH_CHECK(core::fits_float32(new_scale),
                "value cannot be converted to type float without overflow");
    impl_->scale.fill_(new_scale);
    impl_->entries.clear();
  }
}

void AmpScaler::update(const at::Tensor& new_scale) {
  if (!is_enabled()) {
    return;
  }
  impl_->check_initialised("update");
  const bool acceptable = new_scale.device().type() == impl_->options.device().type() &&
                          new_scale.numel() == 1 && !new_scale.requires_grad();
  check<AssertionError>(
      acceptable,
      "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
      "requires_grad=False.");
  impl_->scale.copy_(new_scale);
  impl_->entries.clear();
}

}  // namespace ampscaler
