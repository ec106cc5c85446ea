// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Fibers: functions with a stack of their own that take turns on one thread of the operating system.

#include <cstddef>

namespace simt::detail {

/// A place to come back to.
struct Context {
  void* stack_pointer = nullptr;
  // Of AddressSanitizer: the stack that is entered, and what it keeps beside the one that is left.
  const void* stack = nullptr;
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;
};

/// Makes `fiber` begin with `entry`, which must never return, on a stack of `bytes`.
void prepare(Context& fiber, void* stack, std::size_t bytes, void (*entry)());

/// Leaves `from` and goes on with `to`.
void switch_context(Context& from, Context& to);

/// Goes on with `to` for good.
[[noreturn]] void leave_for(Context& to);

/// Stacks, each above a page that must not be touched. Kept between launches.
class Stacks {
 public:
  /// `count` stacks of at least `bytes`, or false if there is no address space for them.
  bool reserve(std::size_t count, std::size_t bytes);
  void* at(std::size_t index) const;  // its lowest address
  std::size_t bytes() const { return bytes_; }
  bool contains(const void* address) const;

 private:
  char* memory_ = nullptr;
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace simt::detail
