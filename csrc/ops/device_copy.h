// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Copies of scalars between devices, the one way that is safe without a wait where none is needed.

#include <ATen/core/Tensor.h>

namespace ampscaler::ops {

/// `tensor` on `device`, itself if it is there already. Does not wait for an accelerator as target. A
/// copy to the CPU waits: a non-blocking one would be read before it has arrived.
inline at::Tensor on_device(const at::Tensor& tensor, c10::Device device) {
  if (tensor.device() == device) {
    return tensor;
  }
  return tensor.to(tensor.options().device(device), /*non_blocking=*/!device.is_cpu());
}

/// The same, but always a tensor of its own.
inline at::Tensor copy_on_device(const at::Tensor& tensor, c10::Device device) {
  return tensor.to(tensor.options().device(device), /*non_blocking=*/!device.is_cpu(),
                   /*copy=*/true);
}

}  // namespace ampscaler::ops
