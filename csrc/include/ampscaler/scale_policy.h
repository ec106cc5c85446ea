// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What a scaler does beyond torch's. The default policy is torch, to the bit.

#include <optional>

#include <ATen/core/Tensor.h>

#include "ampscaler/export.h"

namespace ampscaler {

/// `ScalePolicy().min_scale(1).max_scale(1 << 24)`: a value to give to a scaler.
///
/// With limits the scale is within [min_scale, max_scale] from the start to the end: the first
/// scale, those set by update(new_scale) and loaded ones are clamped, and so is the result of every
/// update, on the device and without a wait. Limits are rounded to float32, as the scale is. The
/// tensor that holds the scale is never replaced.
class AMPSCALER_API ScalePolicy {
 public:
  /// The scale does not fall below this; without it, repeated overflows take it to 0, from where it
  /// never returns. In [2^-126, 2^126], else c10::ValueError. Below 1 is legitimate: a loss can
  /// overflow by itself. nullopt, the default: no floor.
  ScalePolicy& min_scale(std::optional<double> value);
  /// The scale does not grow beyond this; without it, it grows until gradients overflow, at most to
  /// the largest float32 (2^127 in powers of two). In [2^-126, 2^126] and at least min_scale, else
  /// c10::ValueError. nullopt, the default: no cap.
  ScalePolicy& max_scale(std::optional<double> value);
  /// Mends what is wrong in torch's scaler itself (docs/gradients.md has the list), in the Python
  /// drop-in. AmpScaler does not look here: it mends the same always, but for some cases that the
  /// list names. Does not change the scale. Default: false.
  ScalePolicy& fix_upstream(bool value);

  std::optional<double> min_scale() const { return min_scale_; }
  std::optional<double> max_scale() const { return max_scale_; }
  bool fix_upstream() const { return fix_upstream_; }

  /// The nearest scale within the limits. With limits, NaN throws c10::ValueError.
  double clamp(double scale) const;
  /// The same for a tensor of any real dtype, as a new float32 one; without limits the tensor
  /// itself. Does not wait, so a NaN stays NaN.
  at::Tensor clamp(const at::Tensor& scale) const;

  bool operator==(const ScalePolicy& other) const = default;

 private:
  bool has_limits() const { return min_scale_ || max_scale_; }

  std::optional<double> min_scale_;
  std::optional<double> max_scale_;
  bool fix_upstream_ = false;
};

}  // namespace ampscaler
