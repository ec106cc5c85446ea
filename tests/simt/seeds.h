// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Helpers of the harness's own tests: many schedules, and what a launch complains about.

#include "simt/simt.h"
// The harness comes first.
#include <cstdint>
#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

#include "simt/build_kind.h"

namespace simt::test {

inline Options with_seed(std::uint64_t seed, int resident_blocks = 4) {
  Options options;
  options.seed = seed;
  options.resident_blocks = resident_blocks;
  return options;
}

/// What launching says is wrong; nothing if all is well.
template <typename... Parameters, typename... Arguments>
std::string complaint(dim3 grid, dim3 block, const Options& options, void (*kernel)(Parameters...),
                      const Arguments&... arguments) {
  try {
    launch(grid, block, options, kernel, arguments...);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline testing::AssertionResult mentions(const std::string& text,
                                         std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    if (text.find(part) == std::string::npos) {
      return testing::AssertionFailure() << "no '" << part << "' in: " << text;
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace simt::test
