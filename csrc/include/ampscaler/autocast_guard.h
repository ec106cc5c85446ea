// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Runs a scope under autocast, for the calling thread: the RAII form of torch.autocast that
// LibTorch lacks.
//
//   {
//     ampscaler::AutocastGuard autocast(torch::kCUDA, torch::kHalf);
//     loss = criterion(model->forward(x), y);
//   }
//   scaler.scale(loss).backward();  // outside the guard
//
// One guard per forward pass and loss. autocast keeps low-precision copies of the weights until the
// outermost guard ends: a guard around several optimizer steps would compute with the weights of
// the first, and only the loss would tell.

#include <optional>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "ampscaler/export.h"

namespace ampscaler {

class AMPSCALER_API AutocastGuard {
 public:
  /// Turns autocast on for `device_type`, casting to `dtype`.
  ///
  /// - `dtype`: float16 or bfloat16; float32 means off. Anything else throws c10::ValueError, and
  ///   nothing has changed. By default the current dtype of the device: that of a guard around this
  ///   one, else torch's (float16 on CUDA, bfloat16 on CPU).
  /// - `enabled = false` turns autocast off inside the scope.
  /// - `cache_enabled`: keep casts of weights within the scope; by default the current setting.
  explicit AutocastGuard(c10::DeviceType device_type,
                         std::optional<c10::ScalarType> dtype = std::nullopt, bool enabled = true,
                         std::optional<bool> cache_enabled = std::nullopt);

  /// Restores what the constructor found, also when an exception leaves the scope, and drops the
  /// cached casts if this is the outermost guard or one that changed the dtype (the cache does not
  /// know for which dtype an entry is).
  ~AutocastGuard();

  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  const c10::DeviceType device_type_;
  const bool previous_enabled_;
  const c10::ScalarType previous_dtype_;
  const bool previous_cache_enabled_;
  bool dtype_changed_;
};

}  // namespace ampscaler
