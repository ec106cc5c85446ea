// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The scalar arguments of an operator, torch's side: tensors with one element, whose values only the
// device knows.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include "kernels/cuda/step_arguments.h"
#include "ops/gradient_plan.h"
#include "ops/signatures.h"

namespace ampscaler::cuda {

/// Must live until the launches that read it are in the stream.
class KernelScalar {
 public:
  KernelScalar() = default;

  // Kernels read the dtypes of gradients. What others hold fits float64, as which the CPU reads them too.
  explicit KernelScalar(const ops::OptionalTensor& given) {
    if (given.has_value()) {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      scalar_ = ops::has_data_type(given->scalar_type()) ? *given : given->to(at::kDouble);
    }
  }

  DeviceScalar get() const {
    return scalar_.defined()
               ? DeviceScalar{scalar_.const_data_ptr(), ops::data_type(scalar_.scalar_type())}
               : DeviceScalar{};
  }

 private:
  at::Tensor scalar_;
};

}  // namespace ampscaler::cuda
