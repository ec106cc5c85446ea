// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The scalar arguments of an operator as numbers, read on the device: tensors with one element, of any dtype
// that gradients have.

#include "core/clip.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/step_arguments.h"

namespace ampscaler::cuda {

__device__ inline double number_or(DeviceScalar scalar, double otherwise) {
  if (scalar.address != nullptr) {
    with_dtype(scalar.dtype, const_cast<void*>(scalar.address),
               [&](const auto* typed) { otherwise = static_cast<double>(load(*typed)); });
  }
  return otherwise;
}

// torch rounds `optimizer.grad_scale` to float32.
__device__ inline core::GradScaling grad_scaling(double scale, DeviceScalar divisor,
                                                 DeviceScalar user_scale) {
  return {scale, number_or(divisor, 1.0),
          static_cast<double>(static_cast<float>(number_or(user_scale, 1.0)))};
}

}  // namespace ampscaler::cuda
