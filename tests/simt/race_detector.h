// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What the compiler's hooks tell the race detector.

#include <cstddef>

namespace simt::race {

struct Kind {
  bool is_write;
  bool is_strong;  // volatile or atomic
};

/// Before an access of the kernel, from where `code` points to.
void access(const void* address, std::size_t bytes, Kind kind, const void* code);

}  // namespace simt::race
