// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The state behind AmpScaler: the numbers, two device scalars, and one entry per optimizer for the
// current iteration.

#include <unordered_map>
#include <vector>

#include "ampscaler/amp_scaler.h"
#include "ampscaler/gradient_groups.h"
#include "core/stage.h"

namespace ampscaler {

/// What one optimizer has done since the last update().
struct OptimizerEntry {
  core::Stage stage = core::Stage::kReady;
  std::vector<DeviceFlag> flags;
  // The first parameter, to notice that an address now belongs to another optimizer (a new one, or
  // one moved there).
  const void* first_parameter = nullptr;
};

/// An optimizer during one call, its parameter groups walked once.
struct Participant {
  explicit Participant(OptimizerAdapter& optimizer)
      : adapter(optimizer), parameters(optimizer.parameters()) {}

  OptimizerAdapter& adapter;
  const std::vector<at::Tensor> parameters;
};

struct AmpScaler::Impl {
  explicit Impl(const AmpScalerOptions& options);

  /// Throws AssertionError, with the name of the calling method, before the first scale().
  void check_initialised(const char* method) const;
  void initialise(c10::Device scale_device);

  /// The entry of `optimizer`, or a fresh one that is not stored yet: a call that throws must leave
  /// no trace.
  OptimizerEntry entry_of(const Participant& optimizer) const;

  /// Checks and divides by the scale, or only checks when `keep_scaled`. Returns the flag of each
  /// device.
  std::vector<DeviceFlag> unscale_gradients(const Participant& optimizer, bool keep_scaled) const;
  /// The flags of several devices as one 0-dim tensor on the device of the scale, exactly 0 or 1.
  at::Tensor combine(const std::vector<DeviceFlag>& flags) const;

  OptimizerEntry unscale(const Participant& optimizer) const;
  StepResult step_ordinary(Participant& optimizer);
  StepResult step_amp_aware(Participant& optimizer);

  AmpScalerOptions options;
  at::Tensor scale;           // 0-dim float32; undefined before the first scale()
  at::Tensor growth_tracker;  // 0-dim int32 on the same device
  std::int64_t init_growth_tracker = 0;
  std::unordered_map<const void*, OptimizerEntry> entries;
};

}  // namespace ampscaler
