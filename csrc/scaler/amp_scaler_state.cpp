// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The numbers of AmpScaler: options, getters, setters, state_dict. The iteration itself is in
// amp_scaler.cpp.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>

#include "ampscaler/amp_scaler.h"
#include "ampscaler/errors.h"
#include "core/numeric_options.h"
#include "scaler/amp_scaler_impl.h"
#include "scaler/host_read.h"
#include "scaler/raise.h"

namespace ampscaler {
namespace {

constexpr const char* kScale = "scale";
constexpr const char* kGrowthFactor = "growth_factor";
constexpr const char* kBackoffFactor = "backoff_factor";
constexpr const char* kGrowthInterval = "growth_interval";
constexpr const char* kGrowthTracker = "_growth_tracker";

c10::IValue item(const c10::impl::GenericDict& dict, const char* key) {
  const auto found = dict.find(key);
  check<KeyError>(found != dict.end(), key);
  return found->value();
}

double real_item(const c10::impl::GenericDict& dict, const char* key) {
  const c10::IValue value = item(dict, key);
  TORCH_CHECK_TYPE(value.isDouble() || value.isInt(), "load_state_dict: ", key,
                   ": expected a float, got ", value.tagKind(), ".");
  return value.isInt() ? static_cast<double>(value.toInt()) : value.toDouble();
}

std::int64_t integer_item(const c10::impl::GenericDict& dict, const char* key) {
  const c10::IValue value = item(dict, key);
  TORCH_CHECK_TYPE(value.isInt(), "load_state_dict: ", key, ": expected an int, got ",
                   value.tagKind(), ".");
  return value.toInt();
}

void check_growth_factor(double value) {
  const std::string complaint = core::check_growth_factor(value);
  check<AssertionError>(complaint != core::kGrowthFactorTooSmall, complaint);
  check_accepted<c10::ValueError>(complaint);
}

void check_backoff_factor(double value) {
  const std::string complaint = core::check_backoff_factor(value);
  check<AssertionError>(complaint != core::kBackoffFactorTooLarge, complaint);
  check_accepted<c10::ValueError>(complaint);
}

void check_growth_interval(std::int64_t value) {
  check_accepted<c10::ValueError>(core::check_growth_interval(value));
}

}  // namespace

AmpScalerOptions& AmpScalerOptions::init_scale(double value) {
  check_accepted<c10::ValueError>(core::check_scale("init_scale", value));
  init_scale_ = value;
  return *this;
}

AmpScalerOptions& AmpScalerOptions::growth_factor(double value) {
  check_growth_factor(value);
  growth_factor_ = value;
  return *this;
}

AmpScalerOptions& AmpScalerOptions::backoff_factor(double value) {
  check_backoff_factor(value);
  backoff_factor_ = value;
  return *this;
}

AmpScalerOptions& AmpScalerOptions::growth_interval(std::int64_t value) {
  check_growth_interval(value);
  growth_interval_ = value;
  return *this;
}

AmpScalerOptions& AmpScalerOptions::enabled(bool value) {
  enabled_ = value;
  return *this;
}

AmpScalerOptions& AmpScalerOptions::policy(const ScalePolicy& value) {
  policy_ = value;
  return *this;
}

AmpScalerOptions& AmpScalerOptions::fp16_grads(Fp16Grads value) {
  fp16_grads_ = value;
  return *this;
}

AmpScaler AmpScaler::check_only(c10::Device device) {
  const ScalePolicy always_one = ScalePolicy().min_scale(1.0).max_scale(1.0);
  return AmpScaler(AmpScalerOptions(device).init_scale(1.0).policy(always_one));
}

AmpScaler::Impl::Impl(const AmpScalerOptions& given) : options(given) {
  TORCH_CHECK_VALUE(!options.device().is_meta(),
                    "AmpScaler: device: expected a device that holds values, got meta");
  if (options.enabled() && options.device().is_cuda() && !at::hasCUDA()) {
    TORCH_WARN("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.");
    options.enabled(false);
  }
  options.init_scale(options.policy().clamp(options.init_scale()));
}

bool AmpScaler::is_enabled() const { return impl().options.enabled(); }

const ScalePolicy& AmpScaler::policy() const { return impl().options.policy(); }

double AmpScaler::get_scale() const {
  if (!is_enabled()) {
    return 1.0;
  }
  return impl().scale.defined() ? read_scalar(impl().scale) : impl().options.init_scale();
}

at::Tensor AmpScaler::scale_tensor() const { return impl().scale; }

std::int64_t AmpScaler::get_growth_tracker() const {
  if (!is_enabled()) {
    return 0;
  }
  return impl().scale.defined() ? static_cast<std::int64_t>(read_scalar(impl().growth_tracker))
                                : impl().init_growth_tracker;
}

double AmpScaler::get_growth_factor() const { return impl().options.growth_factor(); }
double AmpScaler::get_backoff_factor() const { return impl().options.backoff_factor(); }
std::int64_t AmpScaler::get_growth_interval() const { return impl().options.growth_interval(); }
void AmpScaler::set_growth_factor(double new_factor) { impl().options.growth_factor(new_factor); }
void AmpScaler::set_backoff_factor(double new_factor) { impl().options.backoff_factor(new_factor); }
void AmpScaler::set_growth_interval(std::int64_t new_interval) {
  impl().options.growth_interval(new_interval);
}

c10::impl::GenericDict AmpScaler::state_dict() const {
  c10::impl::GenericDict state(c10::StringType::get(), c10::AnyType::get());
  if (!is_enabled()) {
    return state;
  }
  double scale = impl().options.init_scale();
  auto tracker = static_cast<double>(impl().init_growth_tracker);
  if (impl().scale.defined()) {
    std::tie(scale, tracker) = read_scalars(impl().scale, impl().growth_tracker);
  }
  state.insert(kScale, scale);
  state.insert(kGrowthFactor, get_growth_factor());
  state.insert(kBackoffFactor, get_backoff_factor());
  state.insert(kGrowthInterval, get_growth_interval());
  state.insert(kGrowthTracker, static_cast<std::int64_t>(tracker));
  return state;
}

void AmpScaler::load_state_dict(const c10::impl::GenericDict& state_dict) {
  if (!is_enabled()) {
    return;
  }
  TORCH_CHECK(!state_dict.empty(),
              "The source state dict is empty, possibly because it was saved from a disabled "
              "instance of GradScaler.");
  const double scale = policy().clamp(real_item(state_dict, kScale));
  // A saved scale may be anything that a float32 holds: it can have decayed to 0, or been set to
  // inf.
  TORCH_CHECK_VALUE(core::fits_float32(scale),
                    core::expected_got("scale", "a float32 value", scale));
  // The options check each number; building them first leaves this scaler as it was when one is
  // refused.
  AmpScalerOptions loaded = impl().options;
  loaded.growth_factor(real_item(state_dict, kGrowthFactor))
      .backoff_factor(real_item(state_dict, kBackoffFactor))
      .growth_interval(integer_item(state_dict, kGrowthInterval));
  const std::int64_t tracker = integer_item(state_dict, kGrowthTracker);
  check_accepted<c10::ValueError>(core::check_growth_tracker(tracker));
  loaded.init_scale_ = scale;
  const ExclusiveUse use(impl().user);
  if (impl().scale.defined()) {
    impl().check_writable();
    impl().scale.fill_(scale);
    impl().growth_tracker.fill_(tracker);
  }
  impl().options = loaded;
  impl().init_growth_tracker = tracker;
}

}  // namespace ampscaler
