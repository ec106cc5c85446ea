// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Warnings of torch's C++ code as Python warnings, for the length of one call.

#include <utility>

#include <torch/csrc/Exceptions.h>

namespace ampscaler::bindings {

/// The function with torch's C++ warnings turned into Python's. The handler is told of an exception
/// under way: where a filter makes errors of warnings its destructor throws, which would then end
/// the process.
template <typename Result, typename... Arguments>
auto with_python_warnings(Result (*function)(Arguments...)) {
  return [function](Arguments... arguments) -> Result {
    torch::PyWarningHandler warnings;
    try {
      return function(std::forward<Arguments>(arguments)...);
    } catch (...) {
      warnings.set_in_exception();
      throw;
    }
  };
}

}  // namespace ampscaler::bindings
