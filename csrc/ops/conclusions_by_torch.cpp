// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The conclusions of core/grad_stats.h, core/merge_stats.h and core/step_scalars.h with tensors.

#include "ops/conclusions_by_torch.h"

#include <cstddef>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "core/grad_stats.h"
#include "ops/sums_by_torch.h"

namespace ampscaler::ops {
namespace {

at::Tensor rounded(const at::Tensor& real) { return real.to(at::kFloat); }

// core::is_usable for a factor.
at::Tensor is_usable(const at::Tensor& factor) {
  return factor.isfinite().logical_and(factor.abs() >= core::kSmallestFactor);
}

// core::total_scale.
at::Tensor total_scale(const ScalingTensors& scaling) {
  return scaling.scale * at::where(is_valid_divisor(scaling.divisor), scaling.divisor,
                                   at::ones_like(scaling.divisor));
}

// core::is_usable for a scaling.
at::Tensor is_usable(const ScalingTensors& scaling) {
  const at::Tensor factor = norm_factor(scaling);
  return is_valid_divisor(scaling.divisor)
      .logical_and(is_usable(inverse_scale(scaling)))
      .logical_and(is_usable(scaling.user_scale))
      .logical_and(factor.isfinite())
      .logical_and(factor > 0);
}

at::Tensor clip_coefficient(const at::Tensor& norm, const ClipTensors& rule) {
  at::Tensor one = at::ones_like(norm);
  if (!rule.max_norm.has_value()) {
    return one;
  }
  const at::Tensor& max_norm = *rule.max_norm;
  const at::Tensor limited = (max_norm > 0).logical_and(norm > max_norm);
  return at::where(limited, max_norm / (norm + rule.eps), one);
}

at::Tensor effective_grad_scale(const ScalingTensors& scaling, const at::Tensor& coefficient) {
  return rounded(scaling.user_scale * total_scale(scaling) / coefficient);
}

at::Tensor usable_or_one(const at::Tensor& factor) {
  return at::where(is_usable(factor), factor, at::ones_like(factor));
}

at::Tensor slot(const at::Tensor& rows, core::StatsSlot index) { return rows.select(-1, index); }

// What does not depend on how the norm was found.
struct Conclusion {
  at::Tensor coefficient;
  at::Tensor unscale_and_clip;
  at::Tensor grad_scale;
  at::Tensor found_inf;
};

// Whether no float up to `max_abs` becomes infinite by the factors; what only a double holds is not judged.
at::Tensor keeps_finite(const at::Tensor& max_abs, const at::Tensor& factor,
                        const at::Tensor& grad_scale) {
  const at::Tensor largest = rounded(max_abs);
  const at::Tensor kept =
      (largest * factor).isfinite().logical_and((largest / grad_scale).isfinite());
  return largest.isfinite().logical_not().logical_or(kept);
}

// `max_abs` is that of the finite stored values.
Conclusion conclude(const at::Tensor& norm, const at::Tensor& max_abs, const at::Tensor& empty,
                    const at::Tensor& nonfinite, const ScalingTensors& scaling,
                    const ClipTensors& rule) {
  const at::Tensor clipped = clip_coefficient(norm, rule);
  const at::Tensor one = at::ones_like(clipped);
  const at::Tensor inverse = inverse_scale(scaling);
  const at::Tensor factor = rounded(inverse.to(clipped.scalar_type()) * clipped);
  const at::Tensor grad_scale = effective_grad_scale(scaling, clipped);
  const at::Tensor usable = is_usable(scaling)
                                .logical_and(is_usable(rounded(clipped)))
                                .logical_and(is_usable(factor))
                                .logical_and(is_usable(grad_scale))
                                .logical_and(keeps_finite(max_abs, factor, grad_scale));
  const at::Tensor idle = nonfinite.logical_or(usable.logical_not());
  return {at::where(idle, one, clipped), at::where(idle, usable_or_one(inverse), factor),
          at::where(idle, usable_or_one(effective_grad_scale(scaling, one)), grad_scale),
          empty.logical_not().logical_and(idle)};
}

at::Tensor pack_factors(const at::Tensor& found_inf, const at::Tensor& norm,
                        const at::Tensor& coefficient, const at::Tensor& unscale_and_clip,
                        const at::Tensor& grad_scale) {
  return at::stack({rounded(found_inf), rounded(norm), rounded(coefficient),
                    rounded(unscale_and_clip), rounded(grad_scale)});
}

// Divided by the largest meanwhile, so that no power leaves the range.
at::Tensor merged_norm(const at::Tensor& norms, double norm_type) {
  if (norm_type == 0.0) {
    return norms.sum(0);  // of counts
  }
  at::Tensor largest = norms.amax(0);
  if (norm_type > std::numeric_limits<double>::max()) {
    return largest;
  }
  const at::Tensor ordinary = largest.isfinite().logical_and(largest != 0);
  const at::Tensor divisor = at::where(ordinary, largest, at::ones_like(largest));
  const at::Tensor ratios = norms / divisor;
  const at::Tensor root = norm_type == 2.0 ? (ratios * ratios).sum(0).sqrt()
                                           : ratios.pow(norm_type).sum(0).pow(1.0 / norm_type);
  return at::where(ordinary, root * divisor, largest);
}

}  // namespace

ScalingTensors make_scaling(const at::Tensor& scale, const OptionalTensor& divisor,
                            const OptionalTensor& user_scale, at::ScalarType real) {
  const at::Tensor first = scale.reshape({}).to(real);
  const at::Tensor one = at::ones_like(first);
  return {first, divisor.has_value() ? divisor->reshape({}).to(real) : one,
          user_scale.has_value() ? rounded(user_scale->reshape({})).to(real) : one};
}

ClipTensors make_clip_rule(std::optional<double> max_norm, const OptionalTensor& max_norm_tensor,
                           double eps, const at::TensorOptions& real) {
  if (max_norm_tensor.has_value()) {
    return {max_norm_tensor->reshape({}).to(real), eps};
  }
  return {max_norm.has_value() ? OptionalTensor(at::full({}, *max_norm, real)) : std::nullopt, eps};
}

at::Tensor is_valid_divisor(const at::Tensor& divisor) {
  return divisor.isfinite().logical_and(divisor > 0);
}

at::Tensor inverse_scale(const ScalingTensors& scaling) {
  return rounded(total_scale(scaling).reciprocal());
}

at::Tensor norm_factor(const ScalingTensors& scaling) {
  return (total_scale(scaling).abs() * scaling.user_scale.abs()).reciprocal();
}

StatsAndFactors finish_by_torch(const at::Tensor& words, double norm_type,
                                const ScalingTensors& scaling, const ClipTensors& rule) {
  const at::ScalarType real = scaling.scale.scalar_type();
  const auto word = [&](std::size_t offset) { return words.select(0, word_index(offset)); };
  const at::Tensor infs = word(offsetof(core::GradSums, infs));
  const at::Tensor nans = word(offsetof(core::GradSums, nans));
  const at::Tensor overflows = word(offsetof(core::GradSums, overflows));
  const at::Tensor elements = word(offsetof(core::GradSums, elements));
  const at::Tensor factor = norm_factor(scaling);
  const at::Tensor empty = elements == 0;
  const auto of_true_gradients = [&](const at::Tensor& finite) {
    return at::where(empty, at::zeros_like(finite), unless_nonfinite(words, finite));
  };
  const ScaledReals stored = stored_norms(words, norm_type, real);
  const at::Tensor mantissa = norm_type == 0.0 ? stored.mantissa : stored.mantissa * factor;
  const at::Tensor norm = of_true_gradients(to_real({mantissa, stored.exponent}, real));
  const at::Tensor nonfinite = (infs + nans + overflows) > 0;
  const at::Tensor max_abs = largest_magnitude(words, real);
  const Conclusion conclusion = conclude(norm, max_abs, empty, nonfinite, scaling, rule);
  const at::Tensor stats = at::stack({
      norm,
      of_true_gradients(max_abs * factor),
      word(offsetof(core::GradSums, zeros)).to(real),
      word(offsetof(core::GradSums, underflows)).to(real),
      elements.to(real),
      infs.to(real),
      nans.to(real),
      overflows.to(real),
      conclusion.coefficient,
  });
  return {stats, pack_factors(conclusion.found_inf, norm, conclusion.coefficient,
                              conclusion.unscale_and_clip, conclusion.grad_scale)};
}

StatsAndFactors conclude_merged(at::TensorList stats, double norm_type, const ClipTensors& rule) {
  const at::Tensor rows = at::stack(stats);
  const at::Tensor norm = merged_norm(slot(rows, core::kNorm), norm_type);
  at::Tensor merged = rows.sum(0);
  const at::Tensor nonfinite =
      (slot(merged, core::kInfs) + slot(merged, core::kNans) + slot(merged, core::kOverflows)) > 0;
  const at::Tensor clipped = clip_coefficient(norm, rule);
  const at::Tensor usable = norm.isfinite().logical_and(is_usable(rounded(clipped)));
  const at::Tensor found_inf = nonfinite.logical_or(usable.logical_not());
  const at::Tensor one = at::ones_like(norm);
  const at::Tensor coefficient = at::where(found_inf, one, clipped);
  slot(merged, core::kNorm).copy_(norm);
  slot(merged, core::kMaxAbs).copy_(slot(rows, core::kMaxAbs).amax(0));
  slot(merged, core::kClipCoefficient).copy_(coefficient);
  return {merged, pack_factors(found_inf, norm, coefficient, one, one)};
}

at::Tensor conclude_step(const at::Tensor& found_inf, const ScalingTensors& scaling,
                         const at::Tensor& clip_coefficient) {
  const at::Tensor clipped = effective_grad_scale(scaling, clip_coefficient);
  const at::Tensor usable = is_usable(scaling)
                                .logical_and(clip_coefficient > 0)
                                .logical_and(is_usable(rounded(clip_coefficient)))
                                .logical_and(is_usable(clipped));
  const at::Tensor skip = (found_inf.reshape({}) != 0).logical_or(usable.logical_not());
  const at::Tensor unclipped = effective_grad_scale(scaling, at::ones_like(clip_coefficient));
  return at::stack({rounded(skip), at::where(skip, usable_or_one(unclipped), clipped)});
}

}  // namespace ampscaler::ops
