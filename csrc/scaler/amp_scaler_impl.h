// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The state behind AmpScaler: the numbers, two device scalars, and one entry per optimizer for the
// current iteration.

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "ampscaler/amp_scaler.h"
#include "ampscaler/gradient_pass.h"
#include "scaler/exclusive_use.h"
#include "scaler/optimizer_entries.h"

namespace ampscaler {

/// Optimizers whose gradients are looked at together, and what a pass needs to know of them.
struct JointPass {
  struct Member {
    Participant optimizer;
    OptimizerEntry entry;
    bool amp_aware;
  };
  std::vector<Member> members;
  std::vector<PassTarget> targets;  // of the members, in their order
};

struct AmpScaler::Impl {
  explicit Impl(const AmpScalerOptions& options);

  /// Throws AssertionError, with the name of the calling method, before the first scale().
  void check_initialised(const char* method) const;
  void initialise(c10::Device scale_device);
  /// Throws, before anything is written, if the scale was made in inference mode and this is outside.
  void check_writable() const;

  /// Finds non-finite gradients and leaves them as they are. Returns the flag of each device.
  std::vector<DeviceFoundInf> check_gradients_of(const Participant& optimizer) const;
  /// The same, and divides every gradient by scale and divisor.
  std::vector<DeviceFoundInf> divide_by_scale(const Participant& optimizer) const;
  std::vector<DeviceFoundInf> run_alone(const char* method, const PassTarget& target) const;

  OptimizerEntry unscale(const Participant& optimizer) const;
  StepResult step_ordinary(Participant& optimizer);
  StepResult step_amp_aware(Participant& optimizer);
  void end_iteration();

  // Clips and queries: amp_scaler_clip.cpp, amp_scaler_query.cpp.

  /// Prepares a pass that writes nothing. Throws before the first scale(), for optimizers or gradients
  /// that occur in it twice, and for tensor subclasses.
  JointPass look_at(const char* method, const OptimizerAdapters& optimizers) const;
  PassTarget target_of(const char* method, const JointPass::Member& member) const;
  /// The scale; for a disabled scaler 1, beside the gradients.
  at::Tensor scale_for(const std::vector<PassTarget>& targets) const;

  /// Throws unless the gradients may be clipped now. `by_optimizer`: it is the optimizer that unscales.
  void check_may_clip(const char* method, const JointPass::Member& member, const PassTarget& target,
                      bool by_optimizer) const;
  GradientWrite write_of(const JointPass::Member& member, const PassTarget& target) const;
  /// Notes in the entries what a clip has found and done.
  void record_clip(JointPass& pass, const PassResult& result, bool limited);
  void check_may_set_divisor() const;

  AmpScalerOptions options;
  at::Tensor scale;           // 0-dim float32; undefined before the first scale()
  at::Tensor growth_tracker;  // 0-dim int32 on the same device
  std::int64_t init_growth_tracker = 0;
  std::optional<at::Tensor> divisor;  // of this iteration
  OptimizerEntries entries;
  std::atomic<std::thread::id> user;  // the thread that is inside; see ExclusiveUse
};

}  // namespace ampscaler
