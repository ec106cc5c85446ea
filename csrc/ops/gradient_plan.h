// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// A list of gradients as flat memory, which is what loops and CUDA kernels know. Complex gradients are
// pairs of reals; dense ones, permuted or not, are taken as they lie; others go through a contiguous copy.

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/units.h"

namespace ampscaler::ops {

enum class Access : std::uint8_t { kRead, kWrite };

/// How elements follow one another in memory: as they lie, or by their index, which makes a copy of every
/// gradient that is not contiguous.
enum class Order : std::uint8_t { kAsTheyLie, kByIndex };

/// The list must have passed the operator's checks and must outlive the plan. Read access leaves a
/// lazily cloned tensor lazy.
class GradientPlan {
 public:
  GradientPlan(at::TensorList grads, Access access,
               core::EmptyTensors empty_tensors = core::EmptyTensors::kLeaveOut,
               Order order = Order::kAsTheyLie);

  const core::UnitPlan& units() const { return units_; }

  /// Brings what was written into contiguous copies back to the gradients.
  void copy_back() const;

 private:
  struct Copy {
    std::size_t index;
    at::Tensor values;
  };

  at::TensorList grads_;
  core::UnitPlan units_;
  std::vector<Copy> copies_;
};

/// 2 for complex dtypes, whose elements are pairs of reals, else 1.
std::int64_t components(at::ScalarType dtype);

/// Whether data_type() knows `dtype`.
bool has_data_type(at::ScalarType dtype);

/// The dtype of a gradient, or of its components, in plans and kernels.
core::DataType data_type(at::ScalarType dtype);

}  // namespace ampscaler::ops
