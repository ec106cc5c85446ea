// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Exceptions of ampscaler that torch's translator does not know. All others are torch's and arrive
// with their own type already.

#include <ampscaler/errors.h>

#include "bindings/bindings.h"

namespace ampscaler::bindings {
namespace {

// NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is pybind11's
void translate(std::exception_ptr exception) {
  try {
    if (exception) {
      std::rethrow_exception(exception);
    }
  } catch (const AssertionError& error) {
    py::set_error(PyExc_AssertionError, error.what_without_backtrace());
  } catch (const KeyError& error) {
    py::set_error(PyExc_KeyError, error.what_without_backtrace());
  }
}

}  // namespace

void bind_errors() { py::register_local_exception_translator(&translate); }

}  // namespace ampscaler::bindings
