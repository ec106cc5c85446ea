// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The race detector: two accesses to one byte, one of them a write and one of them neither volatile
// nor atomic, must be ordered. Order comes from barriers, and from a fence, an atomic, an atomic of
// someone else on the same address, and a fence:
//
//   writes; __threadfence(); atomicAdd(&x, 1)  -->  atomicAdd(&x, 1); __threadfence(); reads
//
// so what a schedule happens to do does not matter. Shuffles and votes order nothing.

#include "simt/race.h"

#if defined(SIMT_RACE)

#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

#include <unistd.h>

#include "simt/clock.h"
#include "simt/race_detector.h"
#include "simt/scheduler.h"
#include "simt/shadow.h"

namespace simt::race {
namespace {

constexpr std::size_t kMaxThreads = std::size_t{1} << 16U;

struct ThreadClock {
  std::uint32_t step = 1;
  ClockPtr known;      // what it has seen of others
  ClockPtr published;  // what its atomics pass on, since its last fence
  ClockPtr acquired;   // what its next fence will let it see
};

struct Range {
  std::uintptr_t begin;
  std::uintptr_t end;
};

struct Detector {
  std::vector<ThreadClock> threads;
  std::size_t block_size = 0;
  Shadow shadow;
  std::unordered_map<std::uintptr_t, ClockPtr> published;  // by address
  std::vector<Range> constants;
};

Detector& detector() {
  static Detector only;
  return only;
}

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

bool happened_before(const Access& access, std::uint32_t thread) {
  const ClockPtr& known = detector().threads[thread].known;
  return known != nullptr && known->step_of(access.thread) >= access.step;
}

// The place in the kernel, not in our headers that were inlined there.
std::string look_up(std::uint32_t code) {
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (length <= 0) {
    return "?";
  }
  program[length] = '\0';
  char command[4300];
  std::snprintf(command, sizeof(command), "addr2line -i -e '%s' 0x%x", program, code - 1);
  std::FILE* output = popen(command, "r");
  std::string place = "?";
  char line[4096];
  while (output != nullptr && std::fgets(line, sizeof(line), output) != nullptr) {
    const std::string text(line, std::string(line).find_first_of(" \n"));
    if (place == "?" || place.find("intrinsics.h:") != std::string::npos) {
      // Behind the project's folder, which -ffile-prefix-map has made a dot.
      const std::size_t dot = text.rfind("/./");
      place = dot == std::string::npos ? text : text.substr(dot + 3);
    }
  }
  if (output != nullptr) {
    pclose(output);
  }
  return place;
}

std::string place_of(std::uint32_t code) {
  static std::unordered_map<std::uint32_t, std::string> known;  // addr2line takes its time
  std::string& place = known[code];
  if (place.empty()) {
    place = look_up(code);
  }
  return place;
}

std::string text(const Access& access) {
  const std::size_t block_size = detector().block_size;
  return std::string(access.is_strong ? "atomic or volatile " : "") +
         (access.is_write ? "write" : "read") + " by thread " +
         std::to_string(access.thread % block_size) + " of block " +
         std::to_string(access.thread / block_size) + " at " + place_of(access.code);
}

[[noreturn]] void report(const Access& later, const Access& earlier, std::uintptr_t address) {
  char where[32];
  std::snprintf(where, sizeof(where), "%#zx", static_cast<std::size_t>(address));
  detail::scheduler().fail("data race on " + std::string(where) + ": " + text(later) +
                           "; not ordered after " + text(earlier));
}

bool is_constant(std::uintptr_t address) {
  for (const Range& range : detector().constants) {
    if (address >= range.begin && address < range.end) {
      return true;
    }
  }
  return false;
}

void check_word(const Access& access, std::uintptr_t address) {
  Word& word = detector().shadow.at(address);
  const auto is_before = [&](const Access& other) { return happened_before(other, access.thread); };
  const Access* race = word.find_race(access, is_before);
  if (race != nullptr) {
    report(access, *race, address);
  }
  word.record(access, is_before);
}

void check(const void* address, std::size_t bytes, Kind kind, const void* code) {
  const std::uint32_t thread = detail::scheduler().current().number;
  const std::uintptr_t begin = number(address);
  const std::uintptr_t end = begin + bytes;
  for (std::uintptr_t word = begin & ~std::uintptr_t{7}; word < end; word += 8) {
    const std::uintptr_t from = std::max(word, begin) - word;
    const std::uintptr_t to = std::min(word + 8, end) - word;
    const unsigned mask = (1U << to) - (1U << from);
    check_word({thread, detector().threads[thread].step, static_cast<std::uint32_t>(number(code)),
                static_cast<std::uint8_t>(mask), kind.is_write, kind.is_strong},
               word);
  }
}

// A strong access passes on what the last fence has collected, and takes what others passed on.
void exchange(std::uint32_t thread, const void* address, bool is_read, bool is_write) {
  ThreadClock& self = detector().threads[thread];
  const auto found = detector().published.find(number(address));
  if (is_read && found != detector().published.end()) {
    ClockUnion acquired;
    acquired.add(self.acquired);
    acquired.add(found->second);
    self.acquired = acquired.result();
  }
  if (is_write && self.published != nullptr) {
    ClockUnion published;
    published.add(self.published);
    if (is_read && found != detector().published.end()) {
      published.add(found->second);  // an update goes on with what was there
    }
    detector().published[number(address)] = published.result();
  }
}

}  // namespace

// ---- what the harness tells ----

std::string begin(std::size_t threads, std::size_t block_size, const detail::Grid& grid) {
  if (threads > kMaxThreads) {
    return "the race build takes at most " + std::to_string(kMaxThreads) + " threads, got " +
           std::to_string(threads);
  }
  Detector& all = detector();
  all.threads.assign(threads, {});
  all.block_size = block_size;
  all.shadow.clear();
  all.published.clear();
  all.constants.clear();
  for (std::size_t i = 0; i < grid.argument_count; ++i) {
    const std::uintptr_t address = number(grid.arguments[i].address);
    all.constants.push_back({address, address + grid.arguments[i].bytes});
  }
  for (const dim3* variable : {&threadIdx, &blockIdx, &blockDim, &gridDim}) {
    all.constants.push_back({number(variable), number(variable + 1)});
  }
  return {};
}

void join(const std::vector<std::uint32_t>& threads) {
  ClockUnion joined;
  for (const std::uint32_t thread : threads) {
    ThreadClock& self = detector().threads[thread];
    joined.add(self.known);
    joined.add(thread, self.step);
    ++self.step;
  }
  const ClockPtr known = joined.result();
  for (const std::uint32_t thread : threads) {
    detector().threads[thread].known = known;
  }
}

void fence(std::uint32_t thread) {
  ThreadClock& self = detector().threads[thread];
  ClockUnion known;
  known.add(self.known);
  known.add(self.acquired);
  self.known = known.result();
  self.acquired = nullptr;
  ClockUnion published;
  published.add(self.known);
  published.add(thread, self.step);
  self.published = published.result();
  ++self.step;
}

void atomic(std::uint32_t thread, const void* address, std::size_t bytes, const void* code) {
  check(address, bytes, {true, true}, code);
  exchange(thread, address, true, true);
}

void forget(const void* memory, std::size_t bytes) {
  detector().shadow.forget(number(memory), bytes);
}

// ---- what the compiler tells ----

void access(const void* address, std::size_t bytes, Kind kind, const void* code) {
  const detail::HarnessScope scope;
  if (bytes == 0 || detail::is_on_own_stack(address) || is_constant(number(address))) {
    return;
  }
  detail::Scheduler& all = detail::scheduler();
  if (detail::is_on_any_stack(address)) {
    all.fail(detail::name_of(all.current()) + " uses the stack of another thread at " +
             place_of(static_cast<std::uint32_t>(number(code))));
  }
  all.preempt(8);
  check(address, bytes, kind, code);
  if (kind.is_strong) {
    exchange(all.current().number, address, !kind.is_write, kind.is_write);
  }
}

}  // namespace simt::race

#endif
