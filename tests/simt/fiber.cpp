// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The switch between stacks: a few instructions, for x86-64 and g++, as the library is.

#include "simt/fiber.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt::detail {
namespace {

constexpr std::size_t kPage = 4096;

// Whom the next context takes over from.
Context* leaving = nullptr;

#if defined(__SANITIZE_ADDRESS__)
void announce(Context& from, const Context& to, bool for_good) {
  leaving = &from;
  __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake_stack, to.stack, to.stack_bytes);
}
// The stack that was left is told, since nobody asked for the bounds of the main one.
void arrive(void* fake_stack) {
  __sanitizer_finish_switch_fiber(fake_stack, &leaving->stack, &leaving->stack_bytes);
}
#else
void announce(Context& from, const Context& /*to*/, bool /*for_good*/) { leaving = &from; }
void arrive(void* /*fake_stack*/) {}
#endif

}  // namespace

// In the entry of a fiber.
void begin_fiber(void (*entry)()) {
  arrive(nullptr);
  entry();
  std::abort();
}

}  // namespace simt::detail

// Saves what the calling convention asks for. Ends in a jump: a `ret` to a place that was not called
// from here would be mispredicted every time.
asm(R"(
.text
.type simt_switch, @function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size simt_switch, . - simt_switch

.type simt_begin, @function
simt_begin:
  movq %rbx, %rdi
  pushq $0
  jmp *%r12
.size simt_begin, . - simt_begin
)");
extern "C" void simt_switch(void** saved, void* next) asm("simt_switch");
extern "C" void simt_begin() asm("simt_begin");

namespace simt::detail {
namespace {

// What simt_switch pops: r15, r14, r13, r12, rbx, rbp, and where it jumps to.
struct FirstFrame {
  void* r15;
  void* r14;
  void* r13;
  void (*r12)(void (*)());
  void (*rbx)();
  void* rbp;
  void (*next)();
};

void step(Context& from, const Context& to) { simt_switch(&from.stack_pointer, to.stack_pointer); }

}  // namespace

void prepare(Context& fiber, void* stack, std::size_t bytes, void (*entry)()) {
  const FirstFrame frame{nullptr, nullptr, nullptr, &begin_fiber, entry, nullptr, &simt_begin};
  char* top = static_cast<char*>(stack) + bytes - 64;  // stays a multiple of 16 after the pops
  fiber = {top - sizeof(frame), stack, bytes, nullptr};
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, bytes);
#endif
  std::memcpy(fiber.stack_pointer, &frame, sizeof(frame));
}

void switch_context(Context& from, Context& to) {
  announce(from, to, false);
  step(from, to);
  arrive(from.fake_stack);
}

void leave_for(Context& to) {
  static Context nowhere;
  announce(nowhere, to, true);
  step(nowhere, to);
  std::abort();
}

bool Stacks::reserve(std::size_t count, std::size_t bytes) {
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  if (count <= count_ && rounded <= bytes_) {
    return true;
  }
  if (memory_ != nullptr) {
    munmap(memory_, count_ * (bytes_ + kPage));
  }
  *this = {};
  const std::size_t total = count * (rounded + kPage);
  void* memory = mmap(nullptr, total, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return false;
  }
  memory_ = static_cast<char*>(memory);
  count_ = count;
  bytes_ = rounded;
  for (std::size_t i = 0; i < count; ++i) {
    mprotect(memory_ + i * (bytes_ + kPage), kPage, PROT_NONE);
  }
  return true;
}

void* Stacks::at(std::size_t index) const { return memory_ + index * (bytes_ + kPage) + kPage; }

bool Stacks::contains(const void* address) const {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory_);
  return place >= begin && place < begin + count_ * (bytes_ + kPage);
}

}  // namespace simt::detail
