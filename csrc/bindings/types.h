// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Types that several bound functions take or return.

#include <cstdint>
#include <variant>

#include <pybind11/typing.h>
#include <torch/csrc/utils/pybind.h>

namespace ampscaler::bindings {

/// What torch's scaler calls so.
using FoundInfPerDevice = py::typing::Dict<c10::Device, at::Tensor>;

/// A number from Python. A bool is none, as in torch, though Python counts it among the ints: a True in the
/// place of a limit is a mistake.
template <typename T>
class NumberFromPython {
 public:
  NumberFromPython() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): it is that number
  NumberFromPython(T value) : value_(value) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator T() const { return value_; }

 private:
  T value_ = 0;
};

using Real = NumberFromPython<double>;
using Integer = NumberFromPython<std::int64_t>;
using Number = std::variant<Real, at::Tensor>;

}  // namespace ampscaler::bindings

namespace pybind11::detail {

template <typename T>
struct type_caster<ampscaler::bindings::NumberFromPython<T>> {
  PYBIND11_TYPE_CASTER(ampscaler::bindings::NumberFromPython<T>, make_caster<T>::name);

  bool load(handle source, bool convert) {
    make_caster<T> number;
    if (PyBool_Check(source.ptr()) || !number.load(source, convert)) {
      return false;
    }
    value = cast_op<T>(number);
    return true;
  }
};

}  // namespace pybind11::detail
