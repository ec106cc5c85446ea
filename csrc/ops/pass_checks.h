// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Argument checks of the one-pass operators, for every backend and for the Meta kernels: whoever calls
// the check of an operator first refuses the same calls with the same text, before anything is written.
// Texts name operation, argument, what was expected and what came.

#include <optional>

#include <ATen/core/Tensor.h>

#include "ops/signatures.h"

namespace ampscaler::ops {

/// All gradients: defined, on `device`, of a dtype and layout that the passes take; when they are
/// written, also in memory as they read (no lazy negation or conjugate) and no element that stands for
/// several. Expanded gradients may be read. About 5 ns each.
void check_gradients(const char* operation, at::TensorList grads, at::Device device, bool in_place);

/// grad_stats (`in_place` false) and unscale_with_stats_ (true).
void check_pass(const char* operation, at::TensorList grads, const at::Tensor& scale,
                const OptionalTensor& divisor, const OptionalTensor& user_scale, double norm_type,
                std::optional<double> max_norm, const OptionalTensor& max_norm_tensor, double eps,
                const OptionalTensor& accumulate, bool in_place);

void check_unscale_clamp(at::TensorList grads, const at::Tensor& scale, double clip_value,
                         const OptionalTensor& divisor, const OptionalTensor& user_scale);

void check_scale_grads(at::TensorList grads, const at::Tensor& factor, const at::Tensor& found_inf);

void check_find_nonfinite(at::TensorList grads);

void check_grad_norms(at::TensorList grads, const at::Tensor& scale, double norm_type);

void check_merge(at::TensorList stats, double norm_type, std::optional<double> max_norm,
                 const OptionalTensor& max_norm_tensor, double eps);

void check_step_factors(const at::Tensor& found_inf, const OptionalTensor& scale,
                        const OptionalTensor& divisor, const OptionalTensor& user_scale,
                        const OptionalTensor& clip_coefficient);

/// Refuses gradients that share memory with one another: c10::ValueError with both indices. Reads
/// addresses, so Meta kernels leave it out. Tensors without elements share nothing. About 12 ns per
/// gradient in the order of their addresses, else 20 ns.
void check_disjoint(const char* operation, at::TensorList grads);
/// The same as a question.
bool are_disjoint(at::TensorList grads);

/// Bumps the version of what an operator has written or may have written; inference tensors have none.
inline void bump_version(const at::Tensor& tensor) {
  if (!tensor.is_inference()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

inline void bump_versions(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    bump_version(tensor);
  }
}

}  // namespace ampscaler::ops
