// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What the passes must find and store, bit for bit: plain loops that follow the kernels' map from elements
// to lanes and groups, and nothing else of them. Conclusions are drawn by core/grad_stats.h.

#include <algorithm>
#include <array>

#include "core/grad_stats.h"
#include "simt/gradient_list.h"

namespace ampscaler::cuda::test {

/// The three sums of a lane, of which only float64 has the last two.
struct Sums {
  double middle = 0.0;
  double high = 0.0;
  double low = 0.0;
};

inline void add_square(Sums& sums, double value) {
  const double size = std::fabs(value);
  if (!std::isfinite(value)) {
    return;
  }
  if (size >= 0x1p500) {
    sums.high = std::fma(size * 0x1p-600, size * 0x1p-600, sums.high);
  } else if (size < 0x1p-460) {
    sums.low = std::fma(size * 0x1p600, size * 0x1p600, sums.low);
  } else {
    sums.middle = std::fma(size, size, sums.middle);
  }
}

/// A group of vectors of `width` elements each. Not for float64, whose elements are added one by one.
inline void add_group(Sums& sums, const std::vector<double>& group, std::size_t width) {
  float partial = 0.0F;
  for (std::size_t vector = 0; vector < group.size(); vector += width) {
    float squares = 0.0F;
    for (std::size_t i = vector; i < vector + width; ++i) {
      const auto value = static_cast<float>(group[i]);
      squares = std::fma(value, value, squares);
    }
    partial += squares;
  }
  if (partial >= 0x1p-90F && partial <= FLT_MAX) {
    sums.middle += static_cast<double>(partial);
    return;
  }
  for (const double value : group) {  // floats have no need for the other sums
    sums.middle = std::isfinite(value) ? std::fma(value, value, sums.middle) : sums.middle;
  }
}

inline Sums lane_sums(const std::vector<double>& unit, core::DataType dtype, std::size_t lane) {
  const auto width = static_cast<std::size_t>(16 / core::element_bytes(dtype));
  const std::size_t vectors = unit.size() / width;
  Sums sums;
  const std::size_t last = vectors * width + lane;
  if (last < unit.size()) {
    add_square(sums, unit[last]);
  }
  std::size_t vector = lane;
  while (vector < vectors) {
    const std::size_t count = vector + 96 < vectors ? 4 : 1;
    std::vector<double> group;
    for (std::size_t k = 0; k < count; ++k) {
      const auto from = unit.begin() + static_cast<std::ptrdiff_t>((vector + 32 * k) * width);
      group.insert(group.end(), from, from + static_cast<std::ptrdiff_t>(width));
    }
    if (dtype == core::kFloat64) {
      std::ranges::for_each(group, [&](double value) { add_square(sums, value); });
    } else {
      add_group(sums, group, width);
    }
    vector += 32 * count;
  }
  return sums;
}

inline double tree_sum(std::array<double, 32> lanes) {
  for (std::size_t half = 16; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) {
      lanes[lane] += lanes[lane + half];
    }
  }
  return lanes[0];
}

inline void add_unit(core::GradSums& sums, const std::vector<double>& unit, core::DataType dtype) {
  std::array<double, 32> middle;
  std::array<double, 32> high;
  std::array<double, 32> low;
  for (std::size_t lane = 0; lane < 32; ++lane) {
    const Sums of_lane = lane_sums(unit, dtype, lane);
    middle[lane] = of_lane.middle;
    high[lane] = of_lane.high;
    low[lane] = of_lane.low;
  }
  core::add_exactly(sums.limbs, tree_sum(middle));
  core::add_exactly(sums.limbs, tree_sum(high), 1200);
  core::add_exactly(sums.limbs, tree_sum(low), -1200);
}

inline void add_power_unit(core::GradSums& sums, const std::vector<double>& unit, double p) {
  std::array<double, 32> lanes{};
  for (std::size_t i = 0; i < unit.size(); ++i) {
    const double size = std::fabs(unit[i]);
    lanes[i % 32] += !std::isfinite(size) ? 0.0 : p == 1.0 ? size : std::pow(size, p);
  }
  core::add_exactly(sums.limbs, tree_sum(lanes));
}

inline void count_value(core::GradSums& sums, double value) {
  const double size = std::fabs(value);
  ++sums.elements;
  sums.nans += std::isnan(value) ? 1 : 0;
  sums.infs += std::isinf(value) ? 1 : 0;
  sums.zeros += value == 0.0 ? 1 : 0;
  sums.underflows += size > 0.0 && size < 0x1p-14 ? 1 : 0;
  if (std::isfinite(value)) {
    sums.max_abs_bits = std::max(sums.max_abs_bits, __builtin_bit_cast(std::int64_t, size));
  }
}

inline void add_gradient(core::GradSums& sums, const Gradient& gradient, double norm_type) {
  const std::vector<double> values = gradient.values();
  std::ranges::for_each(values, [&](double value) { count_value(sums, value); });
  if (norm_type == 0.0) {
    const bool nonzero = std::ranges::any_of(values, [](double value) { return value != 0.0; });
    core::add_exactly(sums.limbs, nonzero ? 1.0 : 0.0);
    return;
  }
  const auto unit = static_cast<std::size_t>(core::unit_elements(gradient.dtype()));
  for (std::size_t begin = 0; begin < values.size(); begin += unit) {
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to =
        values.begin() + static_cast<std::ptrdiff_t>(std::min(begin + unit, values.size()));
    if (norm_type == 2.0 || norm_type == kInfinity) {
      add_unit(sums, {from, to}, gradient.dtype());
    } else {
      add_power_unit(sums, {from, to}, norm_type);
    }
  }
}

inline core::GradSums sums_of(const GradientList& list, double norm_type = 2.0) {
  core::GradSums sums;
  std::memset(&sums, 0, sizeof(sums));
  for (const Gradient& gradient : list) {
    add_gradient(sums, gradient, norm_type);
  }
  return sums;
}

/// value * factor as stored: the product in float, or double, clamped there, and rounded once.
inline double stored_product(double value, float factor, double limit, core::DataType dtype) {
  if (dtype == core::kFloat64) {
    const double product = value * static_cast<double>(factor);
    return std::isnan(product) ? product : std::clamp(product, -limit, limit);
  }
  const float product = static_cast<float>(value) * factor;
  const auto most = static_cast<float>(limit);
  return rounded(
      static_cast<double>(std::isnan(product) ? product : std::clamp(product, -most, most)), dtype);
}

/// Same number: equal, or NaN both; zeros of equal sign.
inline bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

}  // namespace ampscaler::cuda::test
