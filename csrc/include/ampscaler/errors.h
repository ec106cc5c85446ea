// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Exceptions that c10 does not have. In Python each arrives as the exception that its name says.
//
// All errors of ampscaler are c10::Error or subclasses of it: plain checks are RuntimeError in
// Python, c10::ValueError is ValueError, c10::TypeError is TypeError, c10::NotImplementedError is
// NotImplementedError, and the two below.

#include <string>

#include <c10/util/Exception.h>

#include "ampscaler/export.h"

namespace ampscaler {

/// A method was called too early, or an argument broke a rule that torch guards with
/// AssertionError.
class AMPSCALER_API AssertionError : public c10::Error {
 public:
  using c10::Error::Error;
  ~AssertionError() override;
};

/// A key is missing in a state dict; the message is the key.
class AMPSCALER_API KeyError : public c10::Error {
 public:
  using c10::Error::Error;
  ~KeyError() override;
};

}  // namespace ampscaler
