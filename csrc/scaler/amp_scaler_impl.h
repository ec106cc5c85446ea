// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The state behind AmpScaler: the numbers, two device scalars, and one entry per optimizer for the
// current iteration.

#include <atomic>
#include <thread>
#include <vector>

#include "ampscaler/amp_scaler.h"
#include "scaler/exclusive_use.h"
#include "scaler/optimizer_entries.h"

namespace ampscaler {

struct AmpScaler::Impl {
  explicit Impl(const AmpScalerOptions& options);

  /// Throws AssertionError, with the name of the calling method, before the first scale().
  void check_initialised(const char* method) const;
  void initialise(c10::Device scale_device);
  /// Throws, before anything is written, if the scale was made in inference mode and this is outside.
  void check_writable() const;

  /// Finds non-finite gradients and leaves them as they are. Returns the flag of each device.
  std::vector<DeviceFoundInf> check_only(const Participant& optimizer) const;
  /// The same, and divides every gradient by the scale.
  std::vector<DeviceFoundInf> divide_by_scale(const Participant& optimizer) const;
  std::vector<DeviceFoundInf> multiply_gradients(const Participant& optimizer,
                                                 const at::Tensor& factor, bool allow_half) const;

  OptimizerEntry unscale(const Participant& optimizer) const;
  StepResult step_ordinary(Participant& optimizer);
  StepResult step_amp_aware(Participant& optimizer);

  AmpScalerOptions options;
  at::Tensor scale;           // 0-dim float32; undefined before the first scale()
  at::Tensor growth_tracker;  // 0-dim int32 on the same device
  std::int64_t init_growth_tracker = 0;
  OptimizerEntries entries;
  std::atomic<std::thread::id> user;  // the thread that is inside; see ExclusiveUse
};

}  // namespace ampscaler
