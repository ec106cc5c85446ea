// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Out-of-line destructors: one home for the type information, so that a catch in another library
// recognises the exceptions.

#include "ampscaler/errors.h"

namespace ampscaler {

AssertionError::~AssertionError() = default;
KeyError::~KeyError() = default;

}  // namespace ampscaler
