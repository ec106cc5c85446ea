// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// One C++ signature per operator, for every backend and for the typed caller. Two kernels of one
// operator that differ only in `Tensor&` against `const Tensor&` abort the process at load; so each
// kernel is registered through these types.

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace ampscaler::ops {

using UnscaleFunction = void(at::TensorList grads, const at::Tensor& found_inf,
                             const at::Tensor& inv_scale);
using UpdateScaleFunction = void(const at::Tensor& scale, const at::Tensor& growth_tracker,
                                 const at::Tensor& found_inf, double growth_factor,
                                 double backoff_factor, std::int64_t growth_interval);
// `policy` is a list in the order of core/policy.h.
using AdvanceScaleFunction = void(const at::Tensor& scale, const at::Tensor& growth_tracker,
                                  const at::Tensor& found_inf, at::ArrayRef<double> policy);

}  // namespace ampscaler::ops
