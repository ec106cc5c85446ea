// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// ScalePolicy: the checks of core/policy.h as exceptions, and clamping of scales that come from
// outside.

#include "ampscaler/scale_policy.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/clamp.h>
#include <c10/util/Exception.h>

#include "core/policy.h"
#include "scaler/raise.h"

namespace ampscaler {
namespace {

// The limit as the float32 that the scale can take, or the reason why not.
std::optional<double> checked_limit(const char* argument, const std::optional<double>& value) {
  if (!value) {
    return std::nullopt;
  }
  check_accepted<c10::ValueError>(core::check_scale_limit(argument, *value));
  return static_cast<float>(*value);
}

}  // namespace

ScalePolicy& ScalePolicy::min_scale(std::optional<double> value) {
  const std::optional<double> limit = checked_limit("min_scale", value);
  check_accepted<c10::ValueError>(core::check_scale_limits(limit, max_scale_));
  min_scale_ = limit;
  return *this;
}

ScalePolicy& ScalePolicy::max_scale(std::optional<double> value) {
  const std::optional<double> limit = checked_limit("max_scale", value);
  check_accepted<c10::ValueError>(core::check_scale_limits(min_scale_, limit));
  max_scale_ = limit;
  return *this;
}

ScalePolicy& ScalePolicy::fix_upstream(bool value) {
  fix_upstream_ = value;
  return *this;
}

double ScalePolicy::clamp(double scale) const {
  if (!has_limits()) {
    return scale;
  }
  TORCH_CHECK_VALUE(!std::isnan(scale), "ScalePolicy: scale: expected a number, got nan");
  const double raised = min_scale_ ? std::max(scale, *min_scale_) : scale;
  return max_scale_ ? std::min(raised, *max_scale_) : raised;
}

at::Tensor ScalePolicy::clamp(const at::Tensor& scale) const {
  if (!has_limits()) {
    return scale;
  }
  const auto scalar = [](const std::optional<double>& limit) {
    return limit ? std::optional<at::Scalar>(*limit) : std::nullopt;
  };
  // In float32, as a scaler keeps it: limits may not fit the dtype that someone computed a scale in.
  return at::clamp(scale.to(at::kFloat), scalar(min_scale_), scalar(max_scale_));
}

}  // namespace ampscaler
