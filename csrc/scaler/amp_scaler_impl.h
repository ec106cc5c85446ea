// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The state behind AmpScaler: the numbers, two device scalars, and one entry per optimizer for the
// current iteration.

#include <atomic>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ampscaler/amp_scaler.h"
#include "ampscaler/gradient_groups.h"
#include "core/stage.h"

namespace ampscaler {

/// Parameters that are remembered but not kept alive. Nothing else can come to live at the address of
/// one while it is remembered.
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
using RememberedParameters = std::vector<WeakTensor>;

/// What one optimizer has done since the last update().
struct OptimizerEntry {
  core::Stage stage = core::Stage::kReady;
  std::vector<DeviceFoundInf> found_inf_per_device;
  std::shared_ptr<const RememberedParameters> parameters;
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
  /// Throws, before anything is written, if the scale was made in inference mode and this is outside.
  void check_writable() const;

  /// The entry of `optimizer`, or a fresh one that is not stored yet: a call that throws must leave
  /// no trace.
  OptimizerEntry entry_of(const Participant& optimizer) const;

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
  std::unordered_map<const void*, OptimizerEntry> entries;
  std::atomic<std::thread::id> user;  // the thread that is inside; see ExclusiveUse
};

/// Refuses a second thread while one is inside, since entries and scalars are not protected: two
/// Python threads could otherwise corrupt memory. The same thread may enter again, from an optimizer.
class ExclusiveUse {
 public:
  explicit ExclusiveUse(std::atomic<std::thread::id>& user);
  ~ExclusiveUse();
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

 private:
  std::atomic<std::thread::id>& user_;
  bool outermost_;
};

}  // namespace ampscaler
