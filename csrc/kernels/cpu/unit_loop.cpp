// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The parallel region of the CPU passes. at::parallel_for is header code that runs serially, without a
// word, unless this file is compiled with OpenMP.

#include "kernels/cpu/unit_loop.h"

#include <algorithm>
#include <atomic>

#include <ATen/Parallel.h>
#include <xmmintrin.h>

#if !defined(_OPENMP) && !defined(__clang_analyzer__)
#error "unit_loop.cpp must be compiled with -fopenmp: torch's parallel_for is serial without"
#endif

namespace ampscaler::cpu {
namespace {

// Below it one thread is faster: entering a region costs some microseconds when the other threads sleep.
constexpr std::int64_t kSerialBytes = std::int64_t{512} * 1024;

// The smallest share of the work: threads end a pass within the time for one.
constexpr std::int64_t kRangesPerThread = 32;

// Of what is left, a thread takes a part that shrinks as the end comes near: few beginnings, each of which
// waits for memory, and an end where all finish together, also if one was asleep or is held up. Guided
// self-scheduling (Polychronopoulos and Kuck, 1987) with half the share, since a core may be shared.
std::int64_t guided_share(std::int64_t left, std::int64_t workers) {
  return std::min(left, std::max<std::int64_t>(1, left / (2 * workers)));
}

// Without ranges when all are taken.
RangeShare take_share(std::atomic<std::int64_t>& next, std::int64_t ranges, std::int64_t workers) {
  RangeShare share = {next, 0};
  do {
    share.end = share.begin + guided_share(ranges - share.begin, workers);
  } while (!next.compare_exchange_weak(share.begin, share.end));
  return share;
}

// The calling thread's rounding and flush modes, on a thread of the pool for as long as it works for us.
class ControlWordGuard {
 public:
  explicit ControlWordGuard(unsigned word) : previous_(_mm_getcsr()) { _mm_setcsr(word); }
  ~ControlWordGuard() { _mm_setcsr(previous_); }
  ControlWordGuard(const ControlWordGuard&) = delete;
  ControlWordGuard& operator=(const ControlWordGuard&) = delete;

 private:
  unsigned previous_;
};

}  // namespace

std::int64_t range_count(const core::UnitPlan& plan) {
  if (plan.bytes() < kSerialBytes || at::in_parallel_region() || at::get_num_threads() == 1) {
    return 1;
  }
  const auto ranges = static_cast<std::int64_t>(at::get_num_threads()) * kRangesPerThread;
  return std::min<std::int64_t>(ranges, plan.unit_total());
}

std::int64_t worker_count(std::int64_t ranges) {
  return ranges == 1 ? 1 : std::min<std::int64_t>(at::get_num_threads(), ranges);
}

void run_ranges(std::int64_t ranges,
                c10::function_ref<void(std::int64_t worker, RangeShare share)> body) {
  if (ranges == 1) {
    body(0, {0, 1});
    return;
  }
  const unsigned callers_word = _mm_getcsr();
  const std::int64_t workers = worker_count(ranges);
  std::atomic<std::int64_t> next = 0;
  const auto work = [&](std::int64_t worker, std::int64_t /*end*/) {
    const ControlWordGuard guard(callers_word);
    for (RangeShare share = take_share(next, ranges, workers); share.begin < share.end;
         share = take_share(next, ranges, workers)) {
      body(worker, share);
    }
  };
  at::parallel_for(0, workers, /*grain_size=*/1, work);
}

}  // namespace ampscaler::cpu
