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

void check_limit(const char* argument, const std::optional<double>& value) {
  if (value) {
    check_accepted<c10::ValueError>(core::check_scale_limit(argument, *value));
  }
}

}  // namespace

ScalePolicy& ScalePolicy::min_scale(std::optional<double> value) {
  check_limit("min_scale", value);
  check_accepted<c10::ValueError>(core::check_scale_limits(value, max_scale_));
  min_scale_ = value;
  return *this;
}

ScalePolicy& ScalePolicy::max_scale(std::optional<double> value) {
  check_limit("max_scale", value);
  check_accepted<c10::ValueError>(core::check_scale_limits(min_scale_, value));
  max_scale_ = value;
  return *this;
}

double ScalePolicy::clamp(double scale) const {
  if (*this == ScalePolicy()) {
    return scale;
  }
  TORCH_CHECK_VALUE(!std::isnan(scale), "ScalePolicy: scale: expected a number, got nan");
  const double raised = min_scale_ ? std::max(scale, *min_scale_) : scale;
  return max_scale_ ? std::min(raised, *max_scale_) : raised;
}

at::Tensor ScalePolicy::clamp(const at::Tensor& scale) const {
  if (*this == ScalePolicy()) {
    return scale;
  }
  const auto scalar = [](const std::optional<double>& limit) {
    return limit ? std::optional<at::Scalar>(*limit) : std::nullopt;
  };
  return at::clamp(scale, scalar(min_scale_), scalar(max_scale_));
}

}  // namespace ampscaler
