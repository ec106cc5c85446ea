// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Lists of gradients for tests of kernels: memory of exactly the right size at a wanted alignment, and
// elements as doubles, by conversions that are written out here and share nothing with the kernels.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "core/units.h"

namespace ampscaler::cuda::test {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Precision and range of a dtype narrower than double.
struct Narrow {
  int digits;
  int smallest_exponent;  // of the last bit of subnormal numbers
  double largest;
};

inline Narrow narrow_format(core::DataType dtype) {
  switch (dtype) {
    case core::kFloat16:
      return {11, -24, 65504.0};
    case core::kBFloat16:
      return {8, -133, 0x1.FEp127};
    default:
      return {24, -149, FLT_MAX};
  }
}

/// The nearest value of the dtype, ties to even.
inline double rounded(double value, core::DataType dtype) {
  if (dtype == core::kFloat64 || !std::isfinite(value) || value == 0.0) {
    return value;
  }
  const Narrow format = narrow_format(dtype);
  int exponent = 0;
  std::frexp(value, &exponent);
  const int last_bit = std::max(exponent - format.digits, format.smallest_exponent);
  const double result = std::ldexp(std::nearbyint(std::ldexp(value, -last_bit)), last_bit);
  return std::fabs(result) > format.largest ? std::copysign(kInfinity, value) : result;
}

/// A flat tensor whose address is `offset` bytes beyond a multiple of 16.
class Gradient {
 public:
  Gradient(core::DataType dtype, std::int64_t elements, int offset = 0)
      : dtype_(dtype),
        elements_(elements),
        offset_(offset),
        memory_(static_cast<char*>(std::malloc(bytes() + offset)), &std::free) {
    std::memset(memory_.get(), 0, bytes() + offset);
  }

  core::DataType dtype() const { return dtype_; }
  std::int64_t elements() const { return elements_; }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(memory_.get() + offset_); }
  std::size_t bytes() const {
    return static_cast<std::size_t>(elements_ * core::element_bytes(dtype_));
  }

  double get(std::int64_t i) const {
    if (dtype_ == core::kFloat64) {
      return read<double>(i);
    }
    if (dtype_ == core::kFloat32) {
      return static_cast<double>(read<float>(i));
    }
    const auto bits = read<std::uint16_t>(i);
    if (dtype_ == core::kBFloat16) {
      return static_cast<double>(
          __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16U));
    }
    const int exponent = bits >> 10U & 31U;
    const double fraction = bits & 1023U;
    const double size = exponent == 31  ? (fraction == 0 ? kInfinity : kNan)
                        : exponent == 0 ? std::ldexp(fraction, -24)
                                        : std::ldexp(fraction + 1024, exponent - 25);
    return (bits & 0x8000U) != 0 ? -size : size;
  }

  /// `value` must be one of the dtype, as rounded() makes it.
  void set(std::int64_t i, double value) {
    if (dtype_ == core::kFloat64) {
      write(i, value);
    } else if (dtype_ == core::kFloat32) {
      write(i, static_cast<float>(value));
    } else if (dtype_ == core::kBFloat16) {
      const auto bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(value));
      write(i, static_cast<std::uint16_t>(bits >> 16U));
    } else {
      write(i, half_bits(value));
    }
  }

  std::vector<double> values() const {
    std::vector<double> result;
    for (std::int64_t i = 0; i < elements_; ++i) {
      result.push_back(get(i));
    }
    return result;
  }

 private:
  static std::uint16_t half_bits(double value) {
    const unsigned sign = std::signbit(value) ? 0x8000U : 0U;
    const double size = std::fabs(value);
    if (!std::isfinite(value)) {
      return static_cast<std::uint16_t>(sign | (std::isnan(value) ? 0x7E00U : 0x7C00U));
    }
    if (size < 0x1p-14) {
      return static_cast<std::uint16_t>(sign | static_cast<unsigned>(std::ldexp(size, 24)));
    }
    int exponent = 0;  // size = fraction * 2^exponent with fraction in [0.5, 1)
    const double fraction = std::frexp(size, &exponent);
    const auto digits = static_cast<unsigned>(std::ldexp(fraction, 11)) - 1024U;
    return static_cast<std::uint16_t>(sign | static_cast<unsigned>(exponent + 14) << 10U | digits);
  }

  template <typename T>
  T read(std::int64_t i) const {
    T value;
    std::memcpy(&value, memory_.get() + offset_ + i * static_cast<std::int64_t>(sizeof(T)),
                sizeof(T));
    return value;
  }
  template <typename T>
  void write(std::int64_t i, T value) {
    std::memcpy(memory_.get() + offset_ + i * static_cast<std::int64_t>(sizeof(T)), &value,
                sizeof(T));
  }

  core::DataType dtype_;
  std::int64_t elements_;
  int offset_;
  std::unique_ptr<char, decltype(&std::free)> memory_;
};

using GradientList = std::vector<Gradient>;

inline core::UnitPlan plan_of(const GradientList& list,
                              core::EmptyTensors empty = core::EmptyTensors::kLeaveOut) {
  core::UnitPlan plan(empty);
  for (const Gradient& gradient : list) {
    plan.add(gradient.address(), gradient.elements(), gradient.dtype());
  }
  return plan;
}

enum class Data : std::uint8_t {
  kOrdinary,
  kInfs,
  kNans,
  kBoth,
  kZeros,
  kHuge,
  kSmall,
  kTiny,
  kWide
};
inline constexpr Data kAllData[] = {Data::kOrdinary, Data::kInfs,  Data::kNans,
                                    Data::kBoth,     Data::kZeros, Data::kHuge,
                                    Data::kSmall,    Data::kTiny,  Data::kWide};

inline double random_value(std::mt19937& random, Data data, core::DataType dtype) {
  const double normal = std::normal_distribution<double>()(random);
  const int range = dtype == core::kFloat64 ? 1000 : dtype == core::kFloat16 ? 14 : 120;
  switch (data) {
    case Data::kZeros:
      return std::copysign(0.0, normal);
    case Data::kHuge:
      return std::ldexp(std::copysign(1.0 + std::fabs(normal) / 16, normal), range);
    case Data::kSmall:  // normal numbers, whose squares are not
      return std::ldexp(normal, dtype == core::kFloat64   ? -600
                                : dtype == core::kFloat16 ? -8
                                                          : -70);
    case Data::kTiny:
      return std::ldexp(normal, dtype == core::kFloat64   ? -1060
                                : dtype == core::kFloat16 ? -16
                                                          : -130);
    case Data::kWide:
      return std::ldexp(normal, std::uniform_int_distribution<int>(-range, range - 3)(random));
    default:
      return random() % 8 == 0 ? 0.0 : normal;
  }
}

/// A sixteenth of the elements, one at least, is inf or NaN where the data have them.
inline void fill(GradientList& list, Data data, std::uint32_t seed) {
  std::mt19937 random(seed);
  for (Gradient& gradient : list) {
    for (std::int64_t i = 0; i < gradient.elements(); ++i) {
      const bool bad = random() % 16 == 0 || i == gradient.elements() - 1;
      const bool inf = data == Data::kInfs || (data == Data::kBoth && random() % 2 == 0);
      const bool special =
          bad && (data == Data::kInfs || data == Data::kNans || data == Data::kBoth);
      const double value = random_value(random, data, gradient.dtype());
      gradient.set(i, !special ? rounded(value, gradient.dtype())
                      : inf    ? std::copysign(kInfinity, value)
                               : kNan);
    }
  }
}

inline constexpr core::DataType kAllDtypes[] = {core::kFloat16, core::kBFloat16, core::kFloat32,
                                                core::kFloat64};

/// The sizes at which something changes: around a vector, a group of a warp, and a unit.
inline GradientList list_of(core::DataType dtype, int offset) {
  const std::int64_t unit = core::unit_elements(dtype);
  GradientList list;
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{7}, std::int64_t{0},
                                  std::int64_t{64}, unit - 1, unit, unit + 1, 2 * unit + 77}) {
    list.emplace_back(dtype, size, offset);
  }
  return list;
}

inline GradientList mixed_list() {
  GradientList list;
  for (int i = 0; i < 24; ++i) {
    const core::DataType dtype = kAllDtypes[i % 4];
    const auto offset = static_cast<int>(i / 4 * core::element_bytes(dtype) % 16);
    list.emplace_back(dtype, i % 5 == 0 ? 4100 + i : 3 * i, offset);
  }
  return list;
}

}  // namespace ampscaler::cuda::test
