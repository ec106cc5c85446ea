// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CPU backends of `merge_stats` and `step_factors`: a few scalars each, by the rules of core.

#include <cstring>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <torch/library.h>

#include "core/merge_stats.h"
#include "core/step_scalars.h"
#include "kernels/cpu/scalars.h"
#include "ops/pass_checks.h"
#include "ops/signatures.h"

namespace ampscaler::cpu {
namespace {

// Vectors need not be contiguous: a caller may hand over columns of a table.
std::vector<double> rows_of(at::TensorList stats) {
  std::vector<double> rows;
  rows.reserve(stats.size() * core::kStatsSlots);
  for (const at::Tensor& one : stats) {
    const auto* values = one.const_data_ptr<double>();
    for (std::int64_t slot = 0; slot < core::kStatsSlots; ++slot) {
      rows.push_back(values[slot * one.stride(0)]);
    }
  }
  return rows;
}

ops::StatsAndFactors merge_stats(at::TensorList stats, double norm_type,
                                 std::optional<double> max_norm,
                                 const ops::OptionalTensor& max_norm_tensor, double eps) {
  ops::check_merge(stats, norm_type, max_norm, max_norm_tensor, eps);
  at::Tensor merged = at::detail::empty_cpu({core::kStatsSlots}, at::kDouble);
  at::Tensor factors = at::detail::empty_cpu({core::kFactorSlots}, at::kFloat);
  const std::vector<double> rows = rows_of(stats);
  core::merge_stats(core::StatsRows{rows.data()}, static_cast<std::int64_t>(stats.size()),
                    norm_type, clip_rule(max_norm, max_norm_tensor, eps),
                    merged.mutable_data_ptr<double>(), factors.mutable_data_ptr<float>());
  return {std::move(merged), std::move(factors)};
}

at::Tensor step_factors(const at::Tensor& found_inf, const ops::OptionalTensor& scale,
                        const ops::OptionalTensor& divisor, const ops::OptionalTensor& user_scale,
                        const ops::OptionalTensor& clip_coefficient) {
  ops::check_step_factors(found_inf, scale, divisor, user_scale, clip_coefficient);
  at::Tensor scalars = at::detail::empty_cpu({core::kStepScalars}, at::kFloat);
  core::step_scalars(*found_inf.const_data_ptr<float>(), grad_scaling(scale, divisor, user_scale),
                     number_or_one(clip_coefficient), scalars.mutable_data_ptr<float>());
  return scalars;
}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, CPU, library) {
  library.impl("merge_stats", static_cast<ops::MergeStatsFunction*>(&merge_stats));
  library.impl("step_factors", static_cast<ops::StepFactorsFunction*>(&step_factors));
}

}  // namespace ampscaler::cpu
