// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Knows the operators by name only. No symbol of libampscaler is used, so a linker told to keep
// what is needed would drop it, and the registrations with it.

#include <iostream>

#include <ATen/core/dispatch/Dispatcher.h>

int main() {
  const auto found = c10::Dispatcher::singleton().findSchema({"ampscaler::unscale_", ""});
  std::cout << "registered " << found.has_value() << '\n';
  return found.has_value() ? 0 : 1;
}
