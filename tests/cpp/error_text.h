// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// error_text<Error>(call): what an expected exception says, for comparisons with torch's texts.

#include <string>

#include <c10/util/Exception.h>

namespace ampscaler {

/// The message of the `Error` that `call` throws; "no error" if it throws none. Other exceptions
/// pass.
template <typename Error = c10::Error, typename Call>
std::string error_text(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

}  // namespace ampscaler
