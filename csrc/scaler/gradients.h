// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The gradients of an optimizer's parameters, as AmpScaler needs them: each once, checked before
// anything is written, sparse ones by their values.

#include <vector>

#include <ATen/core/Tensor.h>

#include "ampscaler/gradient_groups.h"

namespace ampscaler {

/// The parameters that have a gradient, without those whose gradient another one has already: a
/// second mention would divide it twice.
std::vector<at::Tensor> parameters_with_gradient(const std::vector<at::Tensor>& parameters);

/// Throws if a gradient cannot be unscaled: c10::ValueError for float16 unless `allow_half`,
/// c10::NotImplementedError or c10::Error, with torch's texts, for dtypes and layouts.
void check_gradients(const std::vector<at::Tensor>& parameters, bool allow_half);

/// Groups the gradients' values. A sparse float16 gradient is replaced by its coalesced form first,
/// since duplicates may overflow in their sum; other sparse ones stay as they are.
GradientGroups group_gradients(const std::vector<at::Tensor>& parameters);

}  // namespace ampscaler
