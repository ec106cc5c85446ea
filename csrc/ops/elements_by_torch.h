// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What the passes do to the elements of one dense gradient, by torch's operators.

#include <optional>

#include <ATen/core/Tensor.h>

namespace ampscaler::ops {

/// For int64 results beside `tensor`.
at::TensorOptions integers_like(const at::Tensor& tensor);

/// Complex gradients as pairs of reals: a view, of the conjugate where that is lazy, since it has the same
/// magnitudes.
at::Tensor as_real(const at::Tensor& values);

/// In the computation type: float64 for float64, else float32.
at::Tensor product_of(const at::Tensor& values, const at::Tensor& factor);

/// Multiplies in place, clamps if asked to, rounds once, and returns how many finite values are not
/// finite any more. In pieces, so that the temporaries are small, where the memory is contiguous.
at::Tensor unscale_gradient(const at::Tensor& values, const at::Tensor& inverse,
                            std::optional<double> clip_value);

/// One row of `find_nonfinite`.
at::Tensor find_nonfinite_in(const at::Tensor& grad);

}  // namespace ampscaler::ops
