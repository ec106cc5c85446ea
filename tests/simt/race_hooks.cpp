// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The functions that -fsanitize=thread calls, in place of those of libtsan: its own detector knows
// neither fibers nor the barriers and fences of CUDA.

#include "simt/race.h"

#if defined(SIMT_RACE)

#include <cstddef>
#include <cstdint>

#include "simt/race_detector.h"

namespace {

void note(const void* address, std::size_t bytes, simt::race::Kind kind, const void* code) {
  if (simt::detail::device_code_runs) {
    simt::race::access(address, bytes, kind, code);
  }
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void* /*caller*/) {}
void __tsan_func_exit() {}

#define SIMT_HOOK(name, bytes, is_write, is_strong)                           \
  void name(void* address) {                                                  \
    note(address, bytes, {is_write, is_strong}, __builtin_return_address(0)); \
  }
#define SIMT_HOOKS(bytes)                                              \
  SIMT_HOOK(__tsan_read##bytes, bytes, false, false)                   \
  SIMT_HOOK(__tsan_write##bytes, bytes, true, false)                   \
  SIMT_HOOK(__tsan_read_write##bytes, bytes, true, false)              \
  SIMT_HOOK(__tsan_unaligned_read##bytes, bytes, false, false)         \
  SIMT_HOOK(__tsan_unaligned_write##bytes, bytes, true, false)         \
  SIMT_HOOK(__tsan_unaligned_read_write##bytes, bytes, true, false)    \
  SIMT_HOOK(__tsan_volatile_read##bytes, bytes, false, true)           \
  SIMT_HOOK(__tsan_volatile_write##bytes, bytes, true, true)           \
  SIMT_HOOK(__tsan_unaligned_volatile_read##bytes, bytes, false, true) \
  SIMT_HOOK(__tsan_unaligned_volatile_write##bytes, bytes, true, true)
SIMT_HOOKS(1)
SIMT_HOOKS(2)
SIMT_HOOKS(4)
SIMT_HOOKS(8)
SIMT_HOOKS(16)

void __tsan_read_range(void* address, std::size_t bytes) {
  note(address, bytes, {false, false}, __builtin_return_address(0));
}
void __tsan_write_range(void* address, std::size_t bytes) {
  note(address, bytes, {true, false}, __builtin_return_address(0));
}
void __tsan_vptr_read(void** address) {
  note(address, sizeof(void*), {false, false}, __builtin_return_address(0));
}
void __tsan_vptr_update(void** address, void* /*value*/) {
  note(address, sizeof(void*), {true, false}, __builtin_return_address(0));
}

// Atomics of C++ are of the test program itself, outside of kernels; the orders are not forwarded,
// since the strongest one serves all.
#define SIMT_FETCH(bits, operation)                                                               \
  std::uint##bits##_t __tsan_atomic##bits##_fetch_##operation(                                    \
      volatile void* address, std::uint##bits##_t value, int /*order*/) {                         \
    return __atomic_fetch_##operation(static_cast<volatile std::uint##bits##_t*>(address), value, \
                                      __ATOMIC_SEQ_CST);                                          \
  }
#define SIMT_COMPARE_EXCHANGE(bits, strength)                                                     \
  bool __tsan_atomic##bits##_compare_exchange_##strength(volatile void* address, void* expected,  \
                                                         std::uint##bits##_t value,               \
                                                         int /*success*/, int /*failure*/) {      \
    return __atomic_compare_exchange_n(static_cast<volatile std::uint##bits##_t*>(address),       \
                                       static_cast<std::uint##bits##_t*>(expected), value, false, \
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                       \
  }
#define SIMT_ATOMICS(bits)                                                                       \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile void* address, int /*order*/) {  \
    return __atomic_load_n(static_cast<const volatile std::uint##bits##_t*>(address),            \
                           __ATOMIC_SEQ_CST);                                                    \
  }                                                                                              \
  void __tsan_atomic##bits##_store(volatile void* address, std::uint##bits##_t value,            \
                                   int /*order*/) {                                              \
    __atomic_store_n(static_cast<volatile std::uint##bits##_t*>(address), value,                 \
                     __ATOMIC_SEQ_CST);                                                          \
  }                                                                                              \
  std::uint##bits##_t __tsan_atomic##bits##_exchange(volatile void* address,                     \
                                                     std::uint##bits##_t value, int /*order*/) { \
    return __atomic_exchange_n(static_cast<volatile std::uint##bits##_t*>(address), value,       \
                               __ATOMIC_SEQ_CST);                                                \
  }                                                                                              \
  SIMT_FETCH(bits, add)                                                                          \
  SIMT_FETCH(bits, sub)                                                                          \
  SIMT_FETCH(bits, and)                                                                          \
  SIMT_FETCH(bits, or)                                                                           \
  SIMT_FETCH(bits, xor)                                                                          \
  SIMT_COMPARE_EXCHANGE(bits, strong)                                                            \
  SIMT_COMPARE_EXCHANGE(bits, weak)
SIMT_ATOMICS(8)
SIMT_ATOMICS(16)
SIMT_ATOMICS(32)
SIMT_ATOMICS(64)

void __tsan_atomic_thread_fence(int /*order*/) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int /*order*/) {}

}  // extern "C"

#endif
