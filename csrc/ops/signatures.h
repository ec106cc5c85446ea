// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// One C++ signature per operator, for every backend and for the typed caller. Two kernels of one
// operator that differ only in `Tensor&` against `const Tensor&` abort the process at load; so each
// kernel is registered through these types.

#include <cstdint>
#include <optional>
#include <tuple>

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

using OptionalTensor = std::optional<at::Tensor>;
// The vectors of core/grad_stats.h: stats, float64, and factors, float32.
using StatsAndFactors = std::tuple<at::Tensor, at::Tensor>;
// grad_stats and unscale_with_stats_.
using GradStatsFunction = StatsAndFactors(at::TensorList grads, const at::Tensor& scale,
                                          const OptionalTensor& divisor,
                                          const OptionalTensor& user_scale, double norm_type,
                                          std::optional<double> max_norm,
                                          const OptionalTensor& max_norm_tensor, double eps,
                                          const OptionalTensor& accumulate);
using UnscaleClampFunction = StatsAndFactors(at::TensorList grads, const at::Tensor& scale,
                                             double clip_value, const OptionalTensor& divisor,
                                             const OptionalTensor& user_scale);
using ScaleGradsFunction = void(at::TensorList grads, const at::Tensor& factor,
                                const at::Tensor& found_inf);
using FindNonfiniteFunction = at::Tensor(at::TensorList grads);
using GradNormsFunction = at::Tensor(at::TensorList grads, const at::Tensor& scale,
                                     double norm_type);
using MergeStatsFunction = StatsAndFactors(at::TensorList stats, double norm_type,
                                           std::optional<double> max_norm,
                                           const OptionalTensor& max_norm_tensor, double eps);
using StepFactorsFunction = at::Tensor(const at::Tensor& found_inf, const OptionalTensor& scale,
                                       const OptionalTensor& divisor,
                                       const OptionalTensor& user_scale,
                                       const OptionalTensor& clip_coefficient);

}  // namespace ampscaler::ops
