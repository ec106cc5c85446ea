// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Thousands of small gradients lie scattered over the memory, and the backward pass has pushed what
// describes them out of the caches. Read one after the other, each waits for four loads in turn:
//
//   parameter -> its AutogradMeta -> the gradient -> its storage
//
// Here a level is fetched for a whole group before the next is looked at, so that the waits overlap.

#include <algorithm>
#include <array>
#include <cstddef>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

namespace ampscaler {

/// Loads that a core keeps in flight; more would wait for one another.
inline constexpr std::size_t kPrefetchGroup = 16;

/// Up to kPrefetchGroup parameters; nullptr where there is none.
using PrefetchGroup = std::array<const c10::TensorImpl*, kPrefetchGroup>;

template <typename Object>
void prefetch(const Object* object) {
  constexpr std::size_t kLine = 64;
  for (std::size_t offset = 0; offset < sizeof(Object); offset += kLine) {
    __builtin_prefetch(reinterpret_cast<const char*>(object) + offset);
  }
}

/// Changes nothing and never fails.
inline void prefetch_gradients(PrefetchGroup group) {
  for (const c10::TensorImpl* parameter : group) {
    prefetch(parameter);  // of nullptr: no effect
  }
  for (const c10::TensorImpl* parameter : group) {
    __builtin_prefetch(parameter == nullptr ? nullptr : parameter->autograd_meta());
  }
  for (const c10::TensorImpl*& tensor : group) {
    tensor = tensor == nullptr ? nullptr : tensor->grad().unsafeGetTensorImpl();
    prefetch(tensor);
  }
  for (const c10::TensorImpl* gradient : group) {
    if (gradient != nullptr) {
      prefetch(gradient->unsafe_storage().unsafeGetStorageImpl());
    }
  }
}

/// The same for up to kPrefetchGroup tensors.
inline void prefetch_gradients(at::TensorList parameters) {
  PrefetchGroup group = {};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    group[i] = parameters[i].defined() ? parameters[i].unsafeGetTensorImpl() : nullptr;
  }
  prefetch_gradients(group);
}

/// Calls `visit(parameter)` for each defined one, in order, with its gradient on the way into the cache.
template <typename Visit>
void for_each_prefetched(at::TensorList parameters, Visit visit) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (i % kPrefetchGroup == 0) {
      prefetch_gradients(parameters.slice(i, std::min(kPrefetchGroup, parameters.size() - i)));
    }
    if (parameters[i].defined()) {
      visit(parameters[i]);
    }
  }
}

}  // namespace ampscaler
