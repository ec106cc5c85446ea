// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// AutocastGuard over at::autocast; see the header for the contract.

#include "ampscaler/autocast_guard.h"

#include <ATen/autocast_mode.h>

namespace ampscaler {
namespace {

// at::autocast validates nothing: it would accept float64 on CPU and compute in it.
c10::ScalarType check_dtype(c10::ScalarType dtype) {
  TORCH_CHECK_VALUE(dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat,
                    "AutocastGuard: dtype: expected float16, bfloat16 or float32 (off), got ",
                    dtype, ".");
  return dtype;
}

}  // namespace

AutocastGuard::AutocastGuard(c10::DeviceType device_type, std::optional<c10::ScalarType> dtype,
                             bool enabled, std::optional<bool> cache_enabled)
    : device_type_(device_type),
      previous_enabled_(at::autocast::is_autocast_enabled(device_type)),
      previous_dtype_(at::autocast::get_autocast_dtype(device_type)),
      previous_cache_enabled_(at::autocast::is_autocast_cache_enabled()),
      dtype_changed_(false) {
  const c10::ScalarType target = check_dtype(dtype.value_or(previous_dtype_));
  const bool turn_on = enabled && target != at::kFloat;
  dtype_changed_ = turn_on && target != previous_dtype_;
  if (dtype_changed_) {
    at::autocast::clear_cache();
    at::autocast::set_autocast_dtype(device_type, target);
  }
  at::autocast::set_autocast_enabled(device_type, turn_on);
  at::autocast::set_autocast_cache_enabled(cache_enabled.value_or(previous_cache_enabled_));
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (at::autocast::decrement_nesting() == 0 || dtype_changed_) {
    at::autocast::clear_cache();
  }
  at::autocast::set_autocast_enabled(device_type_, previous_enabled_);
  at::autocast::set_autocast_dtype(device_type_, previous_dtype_);
  at::autocast::set_autocast_cache_enabled(previous_cache_enabled_);
}

}  // namespace ampscaler
