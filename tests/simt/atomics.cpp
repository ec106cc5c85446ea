// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Atomic updates and fences. On one thread of the operating system every update is atomic; what is
// left is to let others run before it and to tell the race detector.

#include <algorithm>

#include "simt/scheduler.h"

namespace simt::detail {
namespace {

// `code` is where the kernel made the call.
template <typename T, typename Update>
T update(T* address, const void* code, Update new_value) {
  const HarnessScope scope;
  Scheduler& all = scheduler();
  all.preempt(2);
  race::atomic(all.current().number, address, sizeof(T), code);
  const T old = *address;
  *address = new_value(old);
  return old;
}

void fence() {
  const HarnessScope scope;
  Scheduler& all = scheduler();
  all.preempt(2);
  race::fence(all.current().number);
  all.preempt(2);
}

}  // namespace
}  // namespace simt::detail

void __threadfence() { simt::detail::fence(); }

#define SIMT_ATOMIC(name, type, expression)                            \
  type name(type* address, type value) {                               \
    return simt::detail::update(address, __builtin_return_address(0),  \
                                [&](type old) { return expression; }); \
  }
// Signed integers wrap on the device.
int atomicAdd(int* address, int value) {
  return simt::detail::update(address, __builtin_return_address(0), [&](int old) {
    return static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value));
  });
}
SIMT_ATOMIC(atomicAdd, unsigned, old + value)
SIMT_ATOMIC(atomicAdd, unsigned long long, old + value)
SIMT_ATOMIC(atomicOr, unsigned, old | value)
SIMT_ATOMIC(atomicMax, unsigned, std::max(old, value))
SIMT_ATOMIC(atomicMax, unsigned long long, std::max(old, value))
SIMT_ATOMIC(atomicMin, unsigned long long, std::min(old, value))
SIMT_ATOMIC(atomicExch, unsigned long long, (static_cast<void>(old), value))
SIMT_ATOMIC(atomicExch, float, (static_cast<void>(old), value))
SIMT_ATOMIC(atomicInc, unsigned, old >= value ? 0U : old + 1)
