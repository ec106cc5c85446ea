// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What each optimizer has done since the last update(): its stage and what its checks found.
//
// Entries are kept by the optimizer's address, as in torch. Addresses are reused, so an entry also
// remembers its parameters: where none of them is left, another optimizer has come to live.

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ampscaler/gradient_groups.h"
#include "ampscaler/gradient_pass.h"
#include "ampscaler/optimizer_adapter.h"
#include "core/stage.h"

namespace ampscaler {

/// An optimizer during one call, its parameter groups walked once.
struct Participant {
  explicit Participant(OptimizerAdapter& optimizer)
      : adapter(optimizer), parameters(optimizer.parameters()) {}

  OptimizerAdapter& adapter;
  const std::vector<at::Tensor> parameters;
};

/// Parameters that are remembered but not kept alive.
using RememberedParameters = std::vector<WeakTensor>;

struct OptimizerEntry {
  /// Adds what a further check found; what an earlier one found still counts.
  void record(const std::vector<DeviceFoundInf>& found_inf);

  core::Stage stage = core::Stage::kReady;
  /// Gradients are multiplied by scale and divisor; what a step does to them is in `step_factors`.
  bool scaled = true;
  std::vector<DeviceFoundInf> found_inf_per_device;
  /// What the optimizer has yet to multiply its gradients by: 0-dim float64.
  std::optional<at::Tensor> clip_coefficient;
  /// Of a step that has left true gradients, unless it was skipped.
  std::optional<StepFactors> step_factors;
  std::shared_ptr<const RememberedParameters> parameters;
};

class OptimizerEntries {
 public:
  /// The entry of `optimizer`, or a fresh one that is not stored yet: a call that throws must leave
  /// no trace.
  OptimizerEntry find(const Participant& optimizer) const;

  /// Keeps the entry until the iteration ends. What another optimizer at the same address had found
  /// still counts.
  void store(const Participant& optimizer, const OptimizerEntry& entry);

  /// store() as STEPPED, unless the iteration has ended since `iteration_before`: an optimizer's step
  /// may itself call update().
  void store_stepped(const Participant& optimizer, OptimizerEntry entry,
                     std::int64_t iteration_before);

  /// What all checks of this iteration found.
  std::vector<DeviceFoundInf> found_inf() const;

  /// Whether there was a check.
  bool has_checks() const;

  /// Forgets everything.
  void end_iteration();
  /// How many iterations have ended.
  std::int64_t iteration() const { return iteration_; }

 private:
  std::unordered_map<const void*, OptimizerEntry> entries_;
  std::vector<DeviceFoundInf> found_inf_of_past_optimizers_;
  std::int64_t iteration_ = 0;
};

}  // namespace ampscaler
