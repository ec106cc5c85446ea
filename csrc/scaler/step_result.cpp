// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// StepResult: a decision known at once, or read from the device on demand.

#include "ampscaler/step_result.h"

#include <utility>

#include "scaler/host_read.h"

namespace ampscaler {

StepResult::StepResult(StepOutcome outcome, at::Tensor found_inf, at::Tensor value)
    : outcome_(outcome), found_inf_(std::move(found_inf)), value_(std::move(value)) {}

StepResult::StepResult(at::Tensor found_inf, at::Tensor value)
    : found_inf_(std::move(found_inf)), value_(std::move(value)) {}

StepOutcome StepResult::outcome() const {
  if (!outcome_) {
    outcome_ =
        read_scalar(found_inf_) == 0.0 ? StepOutcome::kApplied : StepOutcome::kSkippedNonfinite;
  }
  return *outcome_;
}

}  // namespace ampscaler
