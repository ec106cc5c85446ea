// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// check_disjoint: do gradients share memory? Address ranges are compared in ascending order; where two
// ranges meet, strides can still tell that the elements interleave without touching:
//
//   base[:, :2]  AA..AA..AA..      base[:, 2:]  ..BB..BB..BB

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/impl/COW.h>

#include "ops/pass_checks.h"
#include "ops/pointer_set.h"

namespace ampscaler::ops {
namespace {

struct MemoryRange {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::size_t index;  // in the list
};

// The tensor whose memory counts. A sparse gradient that is not coalesced gets values of its own in every
// pass, so only itself is in its way.
at::Tensor held_memory(const at::Tensor& grad) {
  return grad.layout() == at::kSparse && grad.is_coalesced() ? grad._values() : grad;
}

MemoryRange range_of(const at::Tensor& values, std::size_t index) {
  if (values.layout() == at::kSparse) {
    const auto identity = reinterpret_cast<std::uintptr_t>(values.unsafeGetTensorImpl());
    return {identity, identity + 1, index};
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(values.const_data_ptr());
  const auto element = static_cast<std::int64_t>(values.itemsize());
  std::int64_t bytes = element;
  if (values.is_non_overlapping_and_dense()) {
    bytes *= values.numel();
  } else {
    for (std::int64_t k = 0; k < values.dim(); ++k) {
      bytes += (values.size(k) - 1) * values.stride(k) * element;
    }
  }
  return {begin, begin + static_cast<std::uintptr_t>(bytes), index};
}

// In ascending order of addresses, if the list was not already.
std::vector<MemoryRange> ranges_of(at::TensorList grads) {
  std::vector<MemoryRange> ranges;
  ranges.reserve(grads.size());
  bool ascending = true;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const bool sparse = grads[i].layout() == at::kSparse;
    const at::Tensor held = sparse ? held_memory(grads[i]) : at::Tensor();
    const at::Tensor& values = sparse ? held : grads[i];
    if (values.numel() > 0 || values.layout() == at::kSparse) {
      const MemoryRange range = range_of(values, i);
      ascending = ascending && (ranges.empty() || ranges.back().begin <= range.begin);
      ranges.push_back(range);
    }
  }
  if (!ascending) {
    std::sort(ranges.begin(), ranges.end(),
              [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
  }
  return ranges;
}

struct Axis {
  std::int64_t stride;  // in bytes
  std::int64_t reach;   // bytes from its first to its last step
  bool of_first;
};

void append_axes(const at::Tensor& tensor, bool is_first, std::vector<Axis>& axes) {
  const auto bytes = static_cast<std::int64_t>(tensor.itemsize());
  for (std::int64_t k = 0; k < tensor.dim(); ++k) {
    const std::int64_t stride = tensor.stride(k) * bytes;
    if (tensor.size(k) > 1) {
      axes.push_back({stride, (tensor.size(k) - 1) * stride, is_first});
    }
  }
}

std::vector<Axis> axes_of(const at::Tensor& first, const at::Tensor& second) {
  std::vector<Axis> axes;
  append_axes(first, /*is_first=*/true, axes);
  append_axes(second, /*is_first=*/false, axes);
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  return axes;
}

// Proves that two tensors whose ranges meet have no byte in common, as slices of one tensor have not:
// modulo the common divisor of the largest strides each covers one interval. False: not proved.
bool interleave(const at::Tensor& first, const at::Tensor& second) {
  if (first.layout() == at::kSparse || second.layout() == at::kSparse) {
    return false;
  }
  const std::vector<Axis> axes = axes_of(first, second);
  const auto offset =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(second.const_data_ptr()) -
                                reinterpret_cast<std::uintptr_t>(first.const_data_ptr()));
  std::int64_t modulus = 0;
  for (std::size_t outer = 0; outer < axes.size(); ++outer) {
    modulus = std::gcd(modulus, axes[outer].stride);
    std::int64_t length_of_first = static_cast<std::int64_t>(first.itemsize());
    std::int64_t length_of_second = static_cast<std::int64_t>(second.itemsize());
    for (std::size_t inner = outer + 1; inner < axes.size(); ++inner) {
      (axes[inner].of_first ? length_of_first : length_of_second) += axes[inner].reach;
    }
    const std::int64_t start = modulus == 0 ? 0 : (offset % modulus + modulus) % modulus;
    if (start >= length_of_first && start + length_of_second <= modulus) {
      return true;
    }
  }
  return false;
}

using Pair = std::pair<std::size_t, std::size_t>;

// Whether two ranges that may meet belong to gradients that share memory.
bool are_shared(at::TensorList grads, const MemoryRange& earlier, const MemoryRange& later) {
  return earlier.end > later.begin &&
         !interleave(held_memory(grads[std::min(earlier.index, later.index)]),
                     held_memory(grads[std::max(earlier.index, later.index)]));
}

// Whether nobody but this tensor uses its memory, by what is quick to see.
bool owns_its_memory(const at::Tensor& grad) {
  if (grad.layout() != at::kStrided || !grad.has_storage()) {
    return false;
  }
  const c10::StorageImpl* storage =
      grad.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  // Memory from elsewhere, or of a lazy clone, may be another storage's as well.
  return storage->allocator() != nullptr && storage->resizable() &&
         grad.unsafeGetTensorImpl()->unsafe_storage().use_count() == 1 &&
         !c10::impl::cow::is_cow_data_ptr(storage->data_ptr());
}

// Proves for most lists, without sorting addresses, that no memory is shared.
bool are_distinct_owners(at::TensorList grads) {
  PointerSet seen(grads.size());
  return std::all_of(grads.begin(), grads.end(), [&](const at::Tensor& grad) {
    return owns_its_memory(grad) && seen.insert(grad.unsafeGetTensorImpl());
  });
}

// Two gradients that share memory, the lower index first.
std::optional<Pair> find_shared(at::TensorList grads) {
  if (are_distinct_owners(grads)) {
    return std::nullopt;
  }
  const std::vector<MemoryRange> ranges = ranges_of(grads);
  std::uintptr_t reached = 0;  // the largest end so far
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const MemoryRange& range = ranges[i];
    const auto before = ranges.begin() + static_cast<std::ptrdiff_t>(range.begin < reached ? i : 0);
    const auto shared = std::find_if(ranges.begin(), before, [&](const MemoryRange& earlier) {
      return are_shared(grads, earlier, range);
    });
    if (shared != before) {
      return Pair(std::minmax(shared->index, range.index));
    }
    reached = std::max(reached, range.end);
  }
  return std::nullopt;
}

}  // namespace

bool are_disjoint(at::TensorList grads) { return !find_shared(grads); }

void check_disjoint(const char* operation, at::TensorList grads) {
  const std::optional<Pair> shared = find_shared(grads);
  TORCH_CHECK_VALUE(!shared, "ampscaler::", operation,
                    ": grads: expected tensors with memory of their own, got grads[", shared->first,
                    "] and grads[", shared->second, "] that share memory.");
}

}  // namespace ampscaler::ops
