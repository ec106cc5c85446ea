// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What a tensor is, by the bits of its dispatch keys: one comparison tells most gradients apart from all that
// needs a closer look.

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DispatchKeySet.h>

namespace ampscaler::ops {

/// What a plain tensor of a device with a kernel may carry. Sparse, quantized, nested and meta tensors,
/// subclasses, functorch wrappers, negative and conjugate views each add a key that is not here.
inline constexpr c10::DispatchKeySet kPlainKeys =
    c10::autocast_dispatch_keyset |
    c10::DispatchKeySet({c10::DispatchKey::CPU, c10::DispatchKey::CUDA,
                         c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA,
                         c10::DispatchKey::ADInplaceOrView});

/// On the raw bits: DispatchKeySet's own difference keeps the bits of the backend.
inline bool is_subset(c10::DispatchKeySet keys, c10::DispatchKeySet allowed) {
  return (keys.raw_repr() & ~allowed.raw_repr()) == 0;
}

}  // namespace ampscaler::ops
