// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The vectors of a block, for the statistics of all kinds of elements. The last one may be filled up with
// zeros, which are no elements.

#include <cstdint>

namespace ampscaler::cpu {
// Everything in an unnamed namespace: see kernels_impl.h.
namespace {

// Calls `function` with each vector; the last may be part of one, with zeros behind it.
template <typename V, typename Function>
void for_each_vector(const char* from, std::int64_t bytes, Function function) {
  for (; bytes >= V::kBytes; from += V::kBytes, bytes -= V::kBytes) {
    function(V::load(from));
  }
  if (bytes > 0) {
    function(V::load_part(from, bytes));
  }
}

// Zero lanes behind the last element are not elements.
template <typename V>
std::int64_t padding_bytes(std::int64_t bytes) {
  const std::int64_t rest = bytes % V::kBytes;
  return rest == 0 ? 0 : V::kBytes - rest;
}

}  // namespace
}  // namespace ampscaler::cpu
