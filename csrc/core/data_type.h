// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The dtypes that gradients have in kernels. The value is an index into tables of functions and a code
// in plans; a complex gradient is one of its component's dtype with twice the elements.

#include <cstdint>

namespace ampscaler::core {

enum DataType : std::uint8_t { kFloat16, kBFloat16, kFloat32, kFloat64, kDataTypes };

}  // namespace ampscaler::core
