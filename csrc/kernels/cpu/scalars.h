// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The scalar arguments of the CPU passes as numbers: tensors with one element, read where they are, which
// on the CPU costs nothing and waits for nobody.

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/DynamicCast.h>

#include "core/clip.h"
#include "ops/signatures.h"

namespace ampscaler::cpu {

inline double number(const at::Tensor& tensor) {
  return c10::fetch_and_cast<double>(tensor.scalar_type(), tensor.const_data_ptr());
}

inline double number_or_one(const ops::OptionalTensor& tensor) {
  return tensor.has_value() ? number(*tensor) : 1.0;
}

/// torch rounds `optimizer.grad_scale` to float32.
inline core::GradScaling grad_scaling(const ops::OptionalTensor& scale,
                                      const ops::OptionalTensor& divisor,
                                      const ops::OptionalTensor& user_scale) {
  return {number_or_one(scale), number_or_one(divisor),
          static_cast<float>(number_or_one(user_scale))};
}

inline core::ClipRule clip_rule(std::optional<double> max_norm,
                                const ops::OptionalTensor& max_norm_tensor, double eps) {
  core::ClipRule rule;
  rule.max_norm =
      max_norm_tensor.has_value() ? number(*max_norm_tensor) : max_norm.value_or(rule.max_norm);
  rule.eps = eps;
  return rule;
}

}  // namespace ampscaler::cpu
