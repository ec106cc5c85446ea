// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Lists of gradients as flat memory; see gradient_plan.h. A list may hold thousands of tiny tensors, so
// what is done for each reads cached flags only and allocates nothing.

#include "ops/gradient_plan.h"

#include <ATen/core/LegacyTypeDispatch.h>

namespace ampscaler::ops {
namespace {

std::uint64_t address(const at::Tensor& tensor, Access access) {
  const void* data = access == Access::kWrite ? tensor.mutable_data_ptr() : tensor.const_data_ptr();
  return reinterpret_cast<std::uint64_t>(data);
}

bool lies_in(const at::Tensor& grad, Order order) {
  return order == Order::kByIndex ? grad.is_contiguous() : grad.is_non_overlapping_and_dense();
}

}  // namespace

std::int64_t components(at::ScalarType dtype) { return at::isComplexType(dtype) ? 2 : 1; }

bool has_data_type(at::ScalarType dtype) {
  const at::ScalarType real = c10::toRealValueType(dtype);
  return real == at::kHalf || real == at::kBFloat16 || real == at::kFloat || real == at::kDouble;
}

core::DataType data_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
    case at::kComplexHalf:
      return core::kFloat16;
    case at::kBFloat16:
      return core::kBFloat16;
    case at::kFloat:
    case at::kComplexFloat:
      return core::kFloat32;
    default:
      TORCH_INTERNAL_ASSERT(dtype == at::kDouble || dtype == at::kComplexDouble, dtype);
      return core::kFloat64;
  }
}

GradientPlan::GradientPlan(at::TensorList grads, Access access, core::EmptyTensors empty_tensors,
                           Order order)
    : grads_(grads), units_(empty_tensors) {
  units_.reserve(grads.size());
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const at::Tensor& grad = grads[i];
    const at::ScalarType dtype = grad.scalar_type();
    const std::int64_t elements = grad.numel() * components(dtype);
    if (elements == 0) {
      units_.add(/*address=*/0, elements, data_type(dtype));
      continue;
    }
    const at::Tensor* memory = &grad;
    if (!lies_in(grad, order)) {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      copies_.push_back({i, grad.contiguous()});
      memory = &copies_.back().values;
    }
    units_.add(address(*memory, access), elements, data_type(dtype));
  }
}

void GradientPlan::copy_back() const {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const Copy& copy : copies_) {
    grads_[copy.index].copy_(copy.values);
  }
}

}  // namespace ampscaler::ops
