// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// What the harness tells the race detector. Without -DSIMT_RACE nothing.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "simt/simt.h"

namespace simt::detail {

/// Set while a kernel's own code runs. The compiler's hooks look at nothing else: instances of
/// templates that the harness shares with instrumented code call them too.
extern bool device_code_runs;

/// The harness at work inside a kernel's call.
class HarnessScope {
 public:
  HarnessScope() : before_(device_code_runs) { device_code_runs = false; }
  ~HarnessScope() { device_code_runs = before_; }
  HarnessScope(const HarnessScope&) = delete;
  HarnessScope& operator=(const HarnessScope&) = delete;

 private:
  bool before_;
};

}  // namespace simt::detail

// Threads are numbered through the grid.
namespace simt::race {

#if defined(SIMT_RACE)

/// Before a launch: nothing has been accessed. Returns what is wrong, or nothing.
std::string begin(std::size_t threads, std::size_t block_size, const detail::Grid& grid);

/// All that one of `threads` did before is seen by all of them afterwards.
void join(const std::vector<std::uint32_t>& threads);

void fence(std::uint32_t thread);

/// Before an atomic update, from where `code` points to.
void atomic(std::uint32_t thread, const void* address, std::size_t bytes, const void* code);

/// The memory is given to someone else.
void forget(const void* memory, std::size_t bytes);

#else

inline std::string begin(std::size_t /*threads*/, std::size_t /*block_size*/,
                         const detail::Grid& /*grid*/) {
  return {};
}
inline void join(const std::vector<std::uint32_t>& /*threads*/) {}
inline void fence(std::uint32_t /*thread*/) {}
inline void atomic(std::uint32_t /*thread*/, const void* /*address*/, std::size_t /*bytes*/,
                   const void* /*code*/) {}
inline void forget(const void* /*memory*/, std::size_t /*bytes*/) {}

#endif

}  // namespace simt::race
