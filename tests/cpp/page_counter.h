// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Memory that counts the passes over it without a clock. Every page starts closed; the first access to it
// faults, and the handler counts the page, opens it and closes the one opened two faults before:
//
//   pages    0  1  2  3  4  5         one pass over them, now in page 3
//   counts   1  1  1  1  0  0         a second pass, even within a unit of 16 KiB, would make them 2
//   open           x  x               two, since a vector may lie across a border
//
// Closed is either inaccessible, and accesses count, or read-only, and writes do.

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <new>
#include <vector>

#include <sys/mman.h>

namespace ampscaler {

class PageCounter {
 public:
  static constexpr std::uintptr_t kPageBytes = 4096;
  /// How many pages there are of each count.
  using Histogram = std::map<int, std::size_t>;

  explicit PageCounter(std::size_t pages)
      : counts_(pages),
        memory_(mmap(nullptr, pages * kPageBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) {
      throw std::bad_alloc();
    }
  }
  ~PageCounter() { munmap(memory_, counts_.size() * kPageBytes); }
  PageCounter(const PageCounter&) = delete;
  PageCounter& operator=(const PageCounter&) = delete;

  std::byte* memory() const { return static_cast<std::byte*>(memory_); }
  std::size_t pages() const { return counts_.size(); }

  /// How often `call` comes to each page. It must work on one thread; one counter counts at a time.
  template <typename Call>
  Histogram accesses(const Call& call) {
    return count(PROT_NONE, call);
  }

  /// How often `call` comes to each page to write.
  template <typename Call>
  Histogram writes(const Call& call) {
    return count(PROT_READ, call);
  }

 private:
  // Installs the handler and closes all pages for as long as it lives.
  class Watch {
   public:
    Watch(PageCounter& counter, int closed) : counter_(counter) {
      counter.counts_.assign(counter.pages(), 0);
      counter.closed_ = closed;
      counter.open_[0] = counter.open_[1] = nullptr;
      watched_ = &counter;
      struct sigaction action = {};
      action.sa_sigaction = &PageCounter::handle;
      action.sa_flags = SA_SIGINFO;
      sigaction(SIGSEGV, &action, &counter.previous_);
      counter.protect_all(closed);
    }
    ~Watch() {
      counter_.protect_all(PROT_READ | PROT_WRITE);
      sigaction(SIGSEGV, &counter_.previous_, nullptr);
      watched_ = nullptr;
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    PageCounter& counter_;
  };

  template <typename Call>
  Histogram count(int closed, const Call& call) {
    {
      const Watch watch(*this, closed);
      call();
    }
    Histogram histogram;
    for (const int times : counts_) {
      ++histogram[times];
    }
    return histogram;
  }

  void protect_all(int protection) const {
    mprotect(memory_, counts_.size() * kPageBytes, protection);
  }

  // A signal handler: only system calls, and memory that was there before.
  static void handle(int /*signal*/, siginfo_t* info, void* /*context*/) {
    const int error = errno;
    PageCounter* counter = watched_.load();
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    const auto begin = reinterpret_cast<std::uintptr_t>(counter->memory_);
    if (address < begin || address >= begin + counter->counts_.size() * kPageBytes) {
      // Not ours: the access is tried again, and faults for whoever was there before.
      sigaction(SIGSEGV, &counter->previous_, nullptr);
    } else {
      counter->open((address - begin) / kPageBytes);
    }
    errno = error;
  }

  void open(std::size_t page) {
    ++counts_[page];
    if (open_[0] != nullptr) {
      mprotect(open_[0], kPageBytes, closed_);
    }
    open_[0] = open_[1];
    open_[1] = memory() + page * kPageBytes;
    mprotect(open_[1], kPageBytes, PROT_READ | PROT_WRITE);
  }

  std::vector<int> counts_;
  void* memory_;
  int closed_ = PROT_NONE;
  std::byte* open_[2] = {nullptr, nullptr};  // the older one first
  struct sigaction previous_ = {};

  static inline std::atomic<PageCounter*> watched_ = nullptr;
  static_assert(std::atomic<PageCounter*>::is_always_lock_free);
};

}  // namespace ampscaler
