// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Sums of powers; see power_sum.h.

#include "kernels/cpu/power_sum.h"

#include <cmath>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "core/finite.h"
#include "kernels/cpu/unit_loop.h"

namespace ampscaler::cpu {
namespace {

template <typename T>
double sum_of(const core::Unit& unit, double norm_type) {
  const T* values = static_cast<const T*>(memory_of(unit));
  double sum = 0.0;
  for (std::int64_t i = 0; i < unit.elements; ++i) {
    const auto magnitude = std::fabs(static_cast<double>(values[i]));
    if (core::is_finite(magnitude)) {
      sum += norm_type == 1.0 ? magnitude : std::pow(magnitude, norm_type);
    }
  }
  return sum;
}

}  // namespace

double power_sum(const core::Unit& unit, double norm_type) {
  switch (unit.dtype) {
    case core::kFloat16:
      return sum_of<c10::Half>(unit, norm_type);
    case core::kBFloat16:
      return sum_of<c10::BFloat16>(unit, norm_type);
    case core::kFloat32:
      return sum_of<float>(unit, norm_type);
    default:
      return sum_of<double>(unit, norm_type);
  }
}

}  // namespace ampscaler::cpu
