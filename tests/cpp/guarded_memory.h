// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Memory that tells who touches it: pages are protected, and the first access to each is noted with its
// thread and whether it was a write. So tests see what an operator reads, not what it claims to.

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <set>

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

namespace ampscaler {

class GuardedMemory {
 public:
  static constexpr std::int64_t kPageBytes = 4096;

  explicit GuardedMemory(std::int64_t bytes)
      : bytes_((bytes + kPageBytes - 1) / kPageBytes * kPageBytes),
        memory_(mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~GuardedMemory() {
    unwatch();
    munmap(memory_, static_cast<std::size_t>(bytes_));
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  at::Tensor tensor(at::IntArrayRef sizes, at::ScalarType dtype) const {
    return at::from_blob(memory_, sizes, at::dtype(dtype));
  }

  /// From now on the first access to each page is noted. One memory at a time.
  void watch() {
    watched_ = this;
    accesses_ = 0;
    struct sigaction action = {};
    action.sa_sigaction = &GuardedMemory::handle;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &previous_);
    mprotect(memory_, static_cast<std::size_t>(bytes_), PROT_NONE);
  }

  /// Ends it. The notes stay.
  void unwatch() {
    if (watched_ == this) {
      mprotect(memory_, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE);
      sigaction(SIGSEGV, &previous_, nullptr);
      watched_ = nullptr;
    }
  }

  std::int64_t accesses() const { return accesses_; }
  std::int64_t writes() const {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < accesses_; ++i) {
      count += static_cast<std::int64_t>(notes_[static_cast<std::size_t>(i)].write);
    }
    return count;
  }
  std::set<pid_t> threads() const {
    std::set<pid_t> ids;
    for (std::int64_t i = 0; i < accesses_; ++i) {
      ids.insert(notes_[static_cast<std::size_t>(i)].thread);
    }
    return ids;
  }

 private:
  struct Note {
    pid_t thread;
    bool write;
  };

  // A page that was read may still be written: it is opened for reading first.
  static void handle(int /*signal*/, siginfo_t* info, void* context) {
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    const auto begin =
        watched_ == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(watched_->memory_);
    if (watched_ == nullptr || address < begin ||
        address >= begin + static_cast<std::uintptr_t>(watched_->bytes_)) {
      std::abort();  // a true fault
    }
    const auto error = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR];
    const bool write = (error & 2) != 0;
    watched_->note({static_cast<pid_t>(syscall(SYS_gettid)), write});
    mprotect(reinterpret_cast<void*>(address / kPageBytes * kPageBytes), kPageBytes,
             write ? PROT_READ | PROT_WRITE : PROT_READ);
  }

  void note(Note note) {
    const std::int64_t index = accesses_++;
    if (index >= static_cast<std::int64_t>(notes_.size())) {
      std::abort();
    }
    notes_[static_cast<std::size_t>(index)] = note;
  }

  std::int64_t bytes_;
  void* memory_;
  struct sigaction previous_ = {};
  std::atomic<std::int64_t> accesses_ = 0;
  std::array<Note, 16384> notes_ = {};

  static inline GuardedMemory* watched_ = nullptr;
};

/// How many threads have touched the memory in calls of `call`: repeated, under watch, until `threads` were seen
/// or it is hopeless. A thread that the system does not let run leaves a call to the others.
template <typename Call>
std::size_t threads_seen(GuardedMemory& memory, std::size_t threads, Call call) {
  constexpr int kMostCalls = 200;
  std::set<pid_t> seen;
  for (int i = 0; i < kMostCalls && seen.size() < threads; ++i) {
    memory.watch();
    call();
    memory.unwatch();
    seen.merge(memory.threads());
  }
  return seen.size();
}

}  // namespace ampscaler
