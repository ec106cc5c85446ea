// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// TORCH_CHECK for exception types that do not live in namespace c10.

#include <source_location>
#include <string>

#include <c10/util/Exception.h>

namespace ampscaler {

template <typename Error>
void check(bool holds, const std::string& message,
           const std::source_location& where = std::source_location::current()) {
  if (!holds) {
    throw Error({where.function_name(), where.file_name(), where.line()}, message);
  }
}

/// The same for rules in core/ that say what is wrong, or nothing.
template <typename Error>
void check_accepted(const std::string& complaint,
                    const std::source_location& where = std::source_location::current()) {
  check<Error>(complaint.empty(), complaint, where);
}

}  // namespace ampscaler
