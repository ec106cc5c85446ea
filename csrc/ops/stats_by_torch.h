// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The one-pass operators as compositions of torch's operators: for devices without kernels of ours (CUDA
// in a CPU-only build, devices that we know nothing of), and for lists with sparse gradients on any.
//
// Results are those of the kernels: flags, counts and written values to the bit, norms within 2^-20.
// Nothing waits for the device, except that torch waits in coalescing a sparse gradient on CUDA that is not
// coalesced. MPS has no float64, so `stats` is float32 there. Exported for the test
// that compares with the kernels.

#include "ampscaler/export.h"
#include "ops/signatures.h"

namespace ampscaler::ops {

AMPSCALER_API StatsAndFactors grad_stats_by_torch(at::TensorList grads, const at::Tensor& scale,
                                                  const OptionalTensor& divisor,
                                                  const OptionalTensor& user_scale,
                                                  double norm_type, std::optional<double> max_norm,
                                                  const OptionalTensor& max_norm_tensor, double eps,
                                                  const OptionalTensor& accumulate);

AMPSCALER_API StatsAndFactors unscale_with_stats_by_torch(
    at::TensorList grads, const at::Tensor& scale, const OptionalTensor& divisor,
    const OptionalTensor& user_scale, double norm_type, std::optional<double> max_norm,
    const OptionalTensor& max_norm_tensor, double eps, const OptionalTensor& accumulate);

AMPSCALER_API StatsAndFactors unscale_clamp_by_torch(at::TensorList grads, const at::Tensor& scale,
                                                     double clip_value,
                                                     const OptionalTensor& divisor,
                                                     const OptionalTensor& user_scale);

AMPSCALER_API void scale_grads_by_torch(at::TensorList grads, const at::Tensor& factor,
                                        const at::Tensor& found_inf);

AMPSCALER_API at::Tensor find_nonfinite_by_torch(at::TensorList grads);

AMPSCALER_API at::Tensor grad_norms_by_torch(at::TensorList grads, const at::Tensor& scale,
                                             double norm_type);

AMPSCALER_API StatsAndFactors merge_stats_by_torch(at::TensorList stats, double norm_type,
                                                   std::optional<double> max_norm,
                                                   const OptionalTensor& max_norm_tensor,
                                                   double eps);

AMPSCALER_API at::Tensor step_factors_by_torch(const at::Tensor& found_inf,
                                               const OptionalTensor& scale,
                                               const OptionalTensor& divisor,
                                               const OptionalTensor& user_scale,
                                               const OptionalTensor& clip_coefficient);

}  // namespace ampscaler::ops
