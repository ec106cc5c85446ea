// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What AmpScaler::step did, so that schedulers and logs can follow the decision instead of guessing
// it from the scale.

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "ampscaler/export.h"

namespace ampscaler {

enum class StepOutcome {
  kApplied,           // the optimizer changed the parameters
  kSkippedNonfinite,  // a gradient held inf or NaN: parameters and optimizer state are as before
  kDisabled,          // the scaler is disabled: the optimizer ran unconditionally
};

/// Not thread-safe: outcome() remembers what it read. A copy made before that reads again.
class AMPSCALER_API StepResult {
 public:
  /// A decision that is known on the host.
  StepResult(StepOutcome outcome, at::Tensor found_inf, at::Tensor value);
  /// A decision that only the device knows: the optimizer was launched and skips by itself if
  /// `found_inf` is 1.
  StepResult(at::Tensor found_inf, at::Tensor value);

  /// True if the optimizer changed the parameters. Waits for the device if the decision was left to
  /// it, at most once per result.
  bool applied() const { return outcome() != StepOutcome::kSkippedNonfinite; }
  /// Waits under the same condition as applied().
  StepOutcome outcome() const;

  /// 0-dim float32 tensor on the device of the scale, exactly 0 or 1; undefined when the scaler is
  /// disabled. Does not wait.
  const at::Tensor& found_inf() const { return found_inf_; }

  /// What the optimizer's step returned; undefined when it returned nothing or was skipped. Does
  /// not wait.
  const at::Tensor& value() const { return value_; }

 private:
  mutable std::optional<StepOutcome> outcome_;
  at::Tensor found_inf_;
  at::Tensor value_;
};

/// How often this process has waited for a device in ampscaler, since it started. Thread-safe.
AMPSCALER_API std::int64_t host_read_count();

}  // namespace ampscaler
