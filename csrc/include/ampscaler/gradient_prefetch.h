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
#include <torch/csrc/autograd/variable.h>

namespace ampscaler {

/// Loads that a core keeps in flight; more would wait for one another.
inline constexpr std::size_t kPrefetchGroup = 16;

/// Up to kPrefetchGroup parameters; nullptr where there is none.
using PrefetchGroup = std::array<const c10::TensorImpl*, kPrefetchGroup>;

/// What autograd knows of a tensor; nullptr if nothing. Its grad_ is the tensor's grad() without three calls
/// on the way: of thousands of parameters those take a tenth of the pass.
inline const torch::autograd::AutogradMeta* autograd_meta(const c10::TensorImpl& parameter) {
  return static_cast<const torch::autograd::AutogradMeta*>(parameter.autograd_meta());
}

[[gnu::always_inline]] inline void prefetch(const void* object, std::size_t offset) {
  __builtin_prefetch(static_cast<const char*>(object) + offset);  // near nullptr: no effect
}

/// The cache lines that hold the first and the last bytes of an object, where all is that a pass reads of it.
template <typename Object>
[[gnu::always_inline]] inline void prefetch_ends(const Object* object) {
  // Members begin after the pointer to the virtual table, and those at the end are small.
  prefetch(object, sizeof(void*));
  prefetch(object, sizeof(Object) - 3 * sizeof(void*));
}

/// Where a parameter points to its AutogradMeta: after its storage. Nothing else of a parameter is read.
[[gnu::always_inline]] inline void prefetch_parameter(const c10::TensorImpl* parameter) {
  prefetch(parameter, 3 * sizeof(void*));
}

/// Where the Python object is noted lies between the ends of a gradient.
[[gnu::always_inline]] inline void prefetch_gradient(const c10::TensorImpl* gradient) {
  prefetch_ends(gradient);
  prefetch(gradient, sizeof(c10::TensorImpl) / 3);
}

/// Changes nothing and never fails.
inline void prefetch_gradients(PrefetchGroup group) {
  for (const c10::TensorImpl* parameter : group) {
    prefetch_parameter(parameter);
  }
  std::array<const torch::autograd::AutogradMeta*, kPrefetchGroup> metas = {};
  for (std::size_t i = 0; i < kPrefetchGroup; ++i) {
    metas[i] = group[i] == nullptr ? nullptr : autograd_meta(*group[i]);
    if (metas[i] != nullptr) {
      prefetch(&metas[i]->grad_, 0);
    }
  }
  for (std::size_t i = 0; i < kPrefetchGroup; ++i) {
    group[i] = metas[i] == nullptr ? nullptr : metas[i]->grad_.unsafeGetTensorImpl();
    prefetch_gradient(group[i]);
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

/// Calls `visit(parameter, gradient)` for each parameter that has a gradient, in order, with the gradient on
/// the way into the cache.
template <typename Visit>
void for_each_with_gradient(at::TensorList parameters, Visit visit) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (i % kPrefetchGroup == 0) {
      prefetch_gradients(parameters.slice(i, std::min(kPrefetchGroup, parameters.size() - i)));
    }
    const at::Tensor& parameter = parameters[i];
    const auto* meta =
        parameter.defined() ? autograd_meta(*parameter.unsafeGetTensorImpl()) : nullptr;
    if (meta != nullptr && meta->grad_.defined()) {
      visit(parameter, meta->grad_);
    }
  }
}

}  // namespace ampscaler
