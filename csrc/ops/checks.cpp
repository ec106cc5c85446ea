// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Argument checks; see checks.h for the contract.

#include "ops/checks.h"

#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>

#include "core/policy.h"

namespace ampscaler::ops {
namespace {

void check_one_element(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.numel() == 1, name, " must be a 1-element tensor.");
}

void check_dtype(const at::Tensor& tensor, at::ScalarType dtype, const char* name,
                 const char* word) {
  TORCH_CHECK(tensor.scalar_type() == dtype, name, " must be ", word, " tensor.");
}

bool is_supported_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16 ||
         dtype == at::kDouble;
}

}  // namespace

void check_unscale_scalars(const at::Tensor& found_inf, const at::Tensor& inv_scale) {
  check_one_element(inv_scale, "inv_scale");
  check_one_element(found_inf, "found_inf");
  check_dtype(inv_scale, at::kFloat, "inv_scale", "a float");
  check_dtype(found_inf, at::kFloat, "found_inf", "a float");
}

void check_unscale_scalars_on_meta(const at::Tensor& found_inf, const at::Tensor& inv_scale) {
  check_one_element(found_inf, "found_inf");
  check_one_element(inv_scale, "inv_scale");
  TORCH_CHECK(found_inf.is_floating_point(), "found_inf must be a float tensor.");
  TORCH_CHECK(inv_scale.is_floating_point(), "inv_scale must be a float tensor.");
}

void check_unscale_gradient(const at::Tensor& grad, const char* backend) {
  TORCH_CHECK_NOT_IMPLEMENTED(is_supported_dtype(grad.scalar_type()),
                              "\"_amp_foreach_non_finite_check_and_unscale_", backend,
                              "\" not implemented for '", at::toString(grad.scalar_type()), "'");
  // Expanded tensors, in aten's words. Overlap that strides do not show is written through
  // repeatedly, as by aten.
  at::assert_no_internal_overlap(grad);
}

void check_unscalable(const at::Tensor& grad) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      grad.layout() == at::kStrided && !grad.is_quantized() && !grad.is_nested(),
      "ampscaler::unscale_: gradient: expected a dense or sparse COO tensor, got ", grad.toString(),
      ".");
  TORCH_CHECK_NOT_IMPLEMENTED(!grad.is_neg() && !grad.is_conj(),
                              "ampscaler::unscale_: gradient: expected values in memory, got a "
                              "lazily negated or conjugated view.");
  check_unscale_gradient(grad, grad.is_cuda() ? "cuda" : "cpu");
}

void check_update_scale(const at::Tensor& scale, const at::Tensor& growth_tracker,
                        const at::Tensor& found_inf) {
  TORCH_CHECK(!(scale.requires_grad() && scale.is_leaf() && c10::GradMode::is_enabled()),
              "a leaf Variable that requires grad is being used in an in-place operation.");
  check_one_element(growth_tracker, "growth_tracker");
  check_one_element(scale, "current_scale");
  check_one_element(found_inf, "found_inf");
  check_dtype(growth_tracker, at::kInt, "growth_tracker", "an int");
  check_dtype(scale, at::kFloat, "current_scale", "a float");
  check_dtype(found_inf, at::kFloat, "found_inf", "a float");
}

void check_policy(at::ArrayRef<double> policy) {
  const std::string complaint = core::check_packed_policy(policy.data(), policy.size());
  TORCH_CHECK_VALUE(complaint.empty(), "ampscaler::advance_scale_: policy: ", complaint, ".");
}

void check_advance_scale(const at::Tensor& scale, const at::Tensor& growth_tracker,
                         const at::Tensor& found_inf, at::ArrayRef<double> policy) {
  check_update_scale(scale, growth_tracker, found_inf);
  check_policy(policy);
}

void check_update_scale_on_meta(const at::Tensor& scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(scale.is_meta(),
                              "Cannot inplace into non-meta tensor with meta tensor argument");
}

void check_same_device(const char* operation, const char* argument, const at::Tensor& tensor,
                       const at::Tensor& reference) {
  TORCH_CHECK(tensor.device() == reference.device(), "ampscaler::", operation, ": ", argument,
              ": expected a tensor on ", reference.device(), ", got one on ", tensor.device(), ".");
}

}  // namespace ampscaler::ops
