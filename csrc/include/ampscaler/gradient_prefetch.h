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
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

namespace ampscaler {

/// Loads that a core keeps in flight; more would wait for one another.
inline constexpr std::size_t kPrefetchGroup = 16;

/// Up to kPrefetchGroup parameters; nullptr where there is none.
using PrefetchGroup = std::array<const c10::TensorImpl*, kPrefetchGroup>;

/// The cache lines that hold the first and the last bytes of an object, where all is that a pass reads of
/// it; the sizes and strides of a tensor, in between, it does not. Of nullptr: no effect.
template <typename Object>
[[gnu::always_inline]] inline void prefetch_ends(const Object* object) {
  // Members begin after the pointer to the virtual table, and those at the end are small.
  constexpr std::size_t kFirst = sizeof(void*);
  constexpr std::size_t kLast = sizeof(Object) - 3 * sizeof(void*);
  const char* begin = reinterpret_cast<const char*>(object);
  __builtin_prefetch(begin + kFirst);
  __builtin_prefetch(begin + kLast);
}

/// Where a parameter points to its AutogradMeta: early in it. Nothing else of a parameter is read.
[[gnu::always_inline]] inline void prefetch_head(const c10::TensorImpl* parameter) {
  constexpr std::size_t kAfterStorage = 3 * sizeof(void*);
  __builtin_prefetch(reinterpret_cast<const char*>(parameter) + kAfterStorage);
}

/// Where an AutogradMeta points to the gradient: after its virtual table and its name.
[[gnu::always_inline]] inline void prefetch_meta(const void* autograd_meta) {
  constexpr std::size_t kAfterName = sizeof(void*) + sizeof(std::string);
  __builtin_prefetch(autograd_meta);
  __builtin_prefetch(static_cast<const char*>(autograd_meta) + kAfterName);
}

/// Changes nothing and never fails.
inline void prefetch_gradients(PrefetchGroup group) {
  for (const c10::TensorImpl* parameter : group) {
    prefetch_head(parameter);
  }
  for (const c10::TensorImpl* parameter : group) {
    prefetch_meta(parameter == nullptr ? nullptr : parameter->autograd_meta());
  }
  for (const c10::TensorImpl*& tensor : group) {
    tensor = tensor == nullptr ? nullptr : tensor->grad().unsafeGetTensorImpl();
    prefetch_ends(tensor);
  }
  for (const c10::TensorImpl* gradient : group) {
    if (gradient != nullptr) {
      prefetch_ends(gradient->unsafe_storage().unsafeGetStorageImpl());
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
