// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// One joint pass over the gradients of several optimizers, on any devices: check, norm, and what of
// unscaling and clipping has to be written.
//
//   target 0  cuda:0 [g g g]  --read-->  stats --+
//             cuda:1 [g g]    --read-->  stats --+--> one norm, one coefficient --> second pass where
//   target 1  cuda:0 [g g]    --read-->  stats --+                                  one is wanted
//
// For bindings and adapters that collect gradients themselves; programs use AmpScaler.

#include <cstddef>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ampscaler/export.h"
#include "ampscaler/gradient_groups.h"
#include "ampscaler/ops.h"

namespace ampscaler {

/// Gradients by device, in the order in which the devices were first seen.
class AMPSCALER_API GradientLists {
 public:
  struct DeviceList {
    c10::Device device;
    std::vector<at::Tensor> gradients;
  };

  GradientLists() = default;
  GradientLists(const GradientLists&) = default;
  GradientLists(GradientLists&&) = default;
  GradientLists& operator=(const GradientLists&) = default;
  GradientLists& operator=(GradientLists&&) = default;
  ~GradientLists();

  /// Room for so many gradients, if all are on one device. Only saves time.
  void reserve(std::size_t gradients) { expected_ = gradients; }
  void add(const at::Tensor& gradient) {
    // One that only its parameter refers to has no earlier mention here.
    may_repeat_ = may_repeat_ || gradient.use_count() > 1;
    // Inline, as a call for each of a thousand gradients shows in the time of a pass.
    if (lists_.size() == 1 && lists_.front().device == gradient.device()) {
      lists_.front().gradients.push_back(gradient);
    } else {
      list_of(gradient.device()).push_back(gradient);
    }
  }
  /// Leaves out the later mentions of a gradient that occurs twice: it is one gradient.
  void remove_duplicates();
  /// False if two of them share memory.
  bool are_disjoint() const;

  const std::vector<DeviceList>& lists() const { return lists_; }

 private:
  std::vector<at::Tensor>& list_of(c10::Device device);

  std::vector<DeviceList> lists_;
  std::size_t expected_ = 0;
  bool may_repeat_ = false;
};

/// What a pass writes into gradients.
enum class GradientWrite {
  kNothing,         // the optimizer applies the factor itself
  kClip,            // the clip coefficient, where it is not 1
  kUnscale,         // true values, in the pass itself; then the clip coefficient, where it is not 1
  kUnscaleAndClip,  // both with one rounding, in a second pass; nothing if a value is not finite
};

struct PassTarget {
  GradientLists gradients;
  /// Still multiplied by scale and divisor. kUnscale and kUnscaleAndClip need it.
  bool scaled = true;
  GradientWrite write = GradientWrite::kNothing;
  /// See ops::GradStatsOptions.
  std::optional<at::Tensor> user_scale = std::nullopt;
  /// What earlier passes have left to the optimizer to multiply by: true gradients are smaller by this.
  /// 0-dim float64 on the device of the scale.
  std::optional<at::Tensor> clip_coefficient = std::nullopt;
};

/// What a clip writes into the gradients of an optimizer: nothing into those of one that `folds` the
/// coefficient into its step, true values into those of one that does not take the scale itself.
AMPSCALER_API GradientWrite clip_write(const PassTarget& target, bool amp_aware, bool folds,
                                       bool scale_is_one);

struct PassResult {
  at::Tensor norm;       // 0-dim float32, of all targets
  at::Tensor found_inf;  // 0-dim float32, exactly 0 or 1, of all targets
  /// For each target, what is left to the optimizer now: 0-dim float64, 1 if a value is not finite. Of
  /// interest for kNothing only.
  std::vector<at::Tensor> clip_coefficients;
  /// For each target, as for `torch.amp.GradScaler`: flags with storage of their own.
  std::vector<std::vector<DeviceFoundInf>> found_inf_per_device;
};

/// Runs the pass; errors name `operation`. `scale` (0-dim float32) and `options` (tensors on any device)
/// count for all targets; its `user_scale` and `accumulate` are not looked at. Results are on the device
/// of `scale`.
///
/// Does not wait, but for gradients on the CPU and a scale elsewhere, and to coalesce sparse CUDA ones.
/// Bumps the versions of gradients that it may have written. Everything is checked before the first
/// write: c10::ValueError for numbers out of range and gradients that share memory,
/// c10::NotImplementedError for dtypes and layouts, c10::Error for other scalars.
AMPSCALER_API PassResult run_gradient_pass(const char* operation,
                                           const std::vector<PassTarget>& targets,
                                           const at::Tensor& scale,
                                           const ops::GradStatsOptions& options);

/// Unscales the gradients of one target and clamps them to [-clip_value, clip_value], or only clamps those
/// that are not scaled. Applies its clip_coefficient before; its user_scale stays for the optimizer. Returns
/// the flag of each device.
AMPSCALER_API std::vector<DeviceFoundInf> clamp_gradients(const PassTarget& target,
                                                          const at::Tensor& scale,
                                                          const std::optional<at::Tensor>& divisor,
                                                          double clip_value);

/// What an optimizer that divides and skips by itself gets for a step.
struct StepFactors {
  at::Tensor found_inf;                  // 0-dim float32, exactly 0 or 1
  std::optional<at::Tensor> grad_scale;  // 0-dim float32; nothing if all factors are missing
};

/// ops::step_factors() on the device of `found_inf`. `scale` and `divisor` are those that the gradients
/// are still multiplied by.
AMPSCALER_API StepFactors step_factors(const at::Tensor& found_inf,
                                       const std::optional<at::Tensor>& scale,
                                       const std::optional<at::Tensor>& divisor,
                                       const std::optional<at::Tensor>& user_scale,
                                       const std::optional<at::Tensor>& clip_coefficient);

/// float(1 / (scale * divisor)) and a flag that is 1 for a divisor that is not positive and finite, which
/// then counts as 1: what torch's own unscaling needs to take a divisor into account. 0-dim float32.
struct InverseScale {
  at::Tensor inv_scale;
  at::Tensor found_inf;
};
AMPSCALER_API InverseScale inverse_scale(const at::Tensor& scale,
                                         const std::optional<at::Tensor>& divisor);

}  // namespace ampscaler
