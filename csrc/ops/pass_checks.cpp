// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Argument checks of the one-pass operators; see pass_checks.h for the contract.

#include "ops/pass_checks.h"

#include <string>

#include <ATen/MemoryOverlap.h>
#include <c10/core/ScalarType.h>

#include "core/finite.h"
#include "core/grad_stats.h"
#include "ops/plain_keys.h"

namespace ampscaler::ops {
namespace {

std::string dtype_name(const at::Tensor& tensor) {
  return std::string(c10::getDtypeNames(tensor.scalar_type()).first);
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "an undefined tensor";
  }
  const std::string layout =
      tensor.layout() == at::kStrided ? "" : c10::str(tensor.layout(), " layout, ");
  return c10::str(layout, dtype_name(tensor), ", shape ", tensor.sym_sizes());
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_nested() &&
         !tensor.is_quantized();
}

bool has_one_element(const at::Tensor& tensor) { return is_plain(tensor) && tensor.numel() == 1; }

void check_device(const char* operation, const std::string& argument, const at::Tensor& tensor,
                  at::Device device) {
  TORCH_CHECK(tensor.device() == device, "ampscaler::", operation, ": ", argument,
              ": expected a tensor on ", device, ", got one on ", tensor.device(), ".");
}

void check_float_scalar(const char* operation, const char* argument, const at::Tensor& tensor) {
  TORCH_CHECK(has_one_element(tensor) && tensor.scalar_type() == at::kFloat,
              "ampscaler::", operation, ": ", argument,
              ": expected a float32 tensor with 1 element, got ", describe(tensor), ".");
}

void check_real_scalar(const char* operation, const char* argument, const OptionalTensor& tensor,
                       at::Device device) {
  if (!tensor.has_value()) {
    return;
  }
  const bool usable = has_one_element(*tensor) &&
                      (at::isFloatingType(tensor->scalar_type()) ||
                       at::isIntegralType(tensor->scalar_type(), /*includeBool=*/false));
  TORCH_CHECK(usable, "ampscaler::", operation, ": ", argument,
              ": expected a tensor of real numbers with 1 element, got ", describe(*tensor), ".");
  check_device(operation, argument, *tensor, device);
}

void check_norm_type(const char* operation, double norm_type) {
  TORCH_CHECK_VALUE(norm_type >= 0.0, "ampscaler::", operation,
                    ": norm_type: expected a number >= 0, got ", norm_type, ".");
}

void check_clip_rule(const char* operation, std::optional<double> max_norm,
                     const OptionalTensor& max_norm_tensor, double eps, at::Device device) {
  TORCH_CHECK_VALUE(!max_norm.has_value() || *max_norm > 0.0, "ampscaler::", operation,
                    ": max_norm: expected a number > 0, got ", max_norm.value_or(0.0), ".");
  TORCH_CHECK_VALUE(eps >= 0.0 && core::is_finite(eps), "ampscaler::", operation,
                    ": eps: expected a finite number >= 0, got ", eps, ".");
  check_real_scalar(operation, "max_norm_tensor", max_norm_tensor, device);
}

void check_accumulate(const char* operation, const OptionalTensor& accumulate, at::Device device) {
  if (!accumulate.has_value()) {
    return;
  }
  const bool usable = is_plain(*accumulate) && accumulate->scalar_type() == at::kLong &&
                      accumulate->dim() == 1 && accumulate->size(0) == core::kGradSumsWords &&
                      accumulate->is_contiguous();
  TORCH_CHECK(usable, "ampscaler::", operation,
              ": accumulate: expected a contiguous int64 tensor of shape [", core::kGradSumsWords,
              "], got ", describe(*accumulate), ".");
  check_device(operation, "accumulate", *accumulate, device);
}

bool is_gradient_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
    case at::kComplexHalf:
    case at::kComplexFloat:
    case at::kComplexDouble:
      return true;
    default:
      return false;
  }
}

bool is_gradient_layout(const at::Tensor& grad) {
  return is_plain(grad) || (grad.layout() == at::kSparse && !grad.is_quantized());
}

bool is_lazy(const at::Tensor& grad) { return grad.is_neg() || grad.is_conj(); }

// The values of a sparse gradient are what is written; those of one that is not coalesced are replaced.
void check_no_internal_overlap(const at::Tensor& grad) {
  const bool symbolic = grad.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  if (!symbolic && grad.layout() == at::kStrided && grad.is_non_overlapping_and_dense()) {
    return;  // most gradients, without the set-up of the call below
  }
  if (grad.layout() != at::kSparse) {
    at::assert_no_internal_overlap(grad);
  } else if (!grad.is_meta() && grad.is_coalesced()) {
    at::assert_no_internal_overlap(grad._values());
  }
}

bool is_accepted(const at::Tensor& grad, at::Device device, bool in_place) {
  const bool right =
      grad.defined() && grad.device() == device && is_gradient_dtype(grad.scalar_type());
  // The layout of most is clear from their keys.
  return right && (is_subset(grad.key_set(), kPlainKeys) ||
                   (is_gradient_layout(grad) && !(in_place && is_lazy(grad))));
}

// Everything that is wrong with a gradient leads here; out of the loop, since texts are long.
[[gnu::noinline]] void refuse_gradient(const char* operation, std::size_t index,
                                       const at::Tensor& grad, at::Device device) {
  const std::string argument = c10::str("grads[", index, "]");
  TORCH_CHECK(grad.defined(), "ampscaler::", operation, ": ", argument,
              ": expected a tensor, got an undefined one.");
  TORCH_CHECK_NOT_IMPLEMENTED(is_gradient_layout(grad), "ampscaler::", operation, ": ", argument,
                              ": expected a dense or sparse COO tensor, got ", grad.toString(),
                              ".");
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_gradient_dtype(grad.scalar_type()), "ampscaler::", operation, ": ", argument,
      ": expected float16, bfloat16, float32, float64 or complex values, got ", dtype_name(grad),
      ".");
  check_device(operation, argument, grad, device);
  TORCH_CHECK_NOT_IMPLEMENTED(false, "ampscaler::", operation, ": ", argument,
                              ": expected values in memory, got a lazily negated or conjugated "
                              "view.");
}

}  // namespace

void check_gradients(const char* operation, at::TensorList grads, at::Device device,
                     bool in_place) {
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const at::Tensor& grad = grads[i];
    if (!is_accepted(grad, device, in_place)) {
      refuse_gradient(operation, i, grad, device);
    }
    if (in_place) {
      check_no_internal_overlap(grad);
    }
  }
}

void check_pass(const char* operation, at::TensorList grads, const at::Tensor& scale,
                const OptionalTensor& divisor, const OptionalTensor& user_scale, double norm_type,
                std::optional<double> max_norm, const OptionalTensor& max_norm_tensor, double eps,
                const OptionalTensor& accumulate, bool in_place) {
  check_float_scalar(operation, "scale", scale);
  const at::Device device = scale.device();
  check_real_scalar(operation, "divisor", divisor, device);
  check_real_scalar(operation, "user_scale", user_scale, device);
  check_norm_type(operation, norm_type);
  check_clip_rule(operation, max_norm, max_norm_tensor, eps, device);
  check_accumulate(operation, accumulate, device);
  check_gradients(operation, grads, device, in_place);
}

void check_unscale_clamp(at::TensorList grads, const at::Tensor& scale, double clip_value,
                         const OptionalTensor& divisor, const OptionalTensor& user_scale) {
  constexpr const char* kOperation = "unscale_clamp_";
  check_float_scalar(kOperation, "scale", scale);
  TORCH_CHECK_VALUE(clip_value >= 0.0, "ampscaler::", kOperation,
                    ": clip_value: expected a number >= 0, got ", clip_value, ".");
  check_real_scalar(kOperation, "divisor", divisor, scale.device());
  check_real_scalar(kOperation, "user_scale", user_scale, scale.device());
  check_gradients(kOperation, grads, scale.device(), /*in_place=*/true);
}

void check_scale_grads(at::TensorList grads, const at::Tensor& factor,
                       const at::Tensor& found_inf) {
  constexpr const char* kOperation = "scale_grads_";
  check_float_scalar(kOperation, "factor", factor);
  check_float_scalar(kOperation, "found_inf", found_inf);
  check_device(kOperation, "found_inf", found_inf, factor.device());
  check_gradients(kOperation, grads, factor.device(), /*in_place=*/true);
}

void check_find_nonfinite(at::TensorList grads) {
  const bool known = !grads.empty() && grads.front().defined();
  const at::Device device = known ? grads.front().device() : at::Device(at::kCPU);
  check_gradients("find_nonfinite", grads, device, /*in_place=*/false);
}

void check_grad_norms(at::TensorList grads, const at::Tensor& scale, double norm_type) {
  check_float_scalar("grad_norms", "scale", scale);
  check_norm_type("grad_norms", norm_type);
  check_gradients("grad_norms", grads, scale.device(), /*in_place=*/false);
}

void check_merge(at::TensorList stats, double norm_type, std::optional<double> max_norm,
                 const OptionalTensor& max_norm_tensor, double eps) {
  constexpr const char* kOperation = "merge_stats";
  TORCH_CHECK_VALUE(!stats.empty(), "ampscaler::", kOperation,
                    ": stats: expected at least 1 tensor, got none.");
  check_norm_type(kOperation, norm_type);
  for (std::size_t i = 0; i < stats.size(); ++i) {
    const at::Tensor& one = stats[i];
    const bool usable = is_plain(one) && one.scalar_type() == at::kDouble && one.dim() == 1 &&
                        one.size(0) == core::kStatsSlots;
    TORCH_CHECK(usable, "ampscaler::", kOperation, ": stats[", i,
                "]: expected a float64 tensor of shape [", static_cast<int>(core::kStatsSlots),
                "], got ", describe(one), ".");
    check_device(kOperation, c10::str("stats[", i, "]"), one, stats.front().device());
  }
  check_clip_rule(kOperation, max_norm, max_norm_tensor, eps, stats.front().device());
}

void check_step_factors(const at::Tensor& found_inf, const OptionalTensor& scale,
                        const OptionalTensor& divisor, const OptionalTensor& user_scale,
                        const OptionalTensor& clip_coefficient) {
  constexpr const char* kOperation = "step_factors";
  check_float_scalar(kOperation, "found_inf", found_inf);
  const at::Device device = found_inf.device();
  check_real_scalar(kOperation, "scale", scale, device);
  check_real_scalar(kOperation, "divisor", divisor, device);
  check_real_scalar(kOperation, "user_scale", user_scale, device);
  check_real_scalar(kOperation, "clip_coefficient", clip_coefficient, device);
}

}  // namespace ampscaler::ops
