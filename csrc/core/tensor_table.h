// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// A gradient as flat memory, for lists that become a plan of units (core/units.h).

#include <cstdint>

namespace ampscaler::core {

struct FlatTensor {
  void* data;
  std::int64_t size;  // elements
};

}  // namespace ampscaler::core
