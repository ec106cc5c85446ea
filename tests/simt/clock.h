// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Vector clocks: up to which step of every other thread a thread has seen. Threads that have met in
// a barrier share one; only the clock's own thread moves on in between, and that step is kept beside.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace simt::race {

/// Steps of the threads `first`, `first` + 1, ...; 0 for all others.
struct Clock {
  std::uint32_t first = 0;
  std::vector<std::uint32_t> steps;

  std::uint32_t step_of(std::uint32_t thread) const {
    const std::size_t index = std::size_t{thread} - first;  // huge if before the first
    return index < steps.size() ? steps[index] : 0;
  }
};

using ClockPtr = std::shared_ptr<const Clock>;

/// Collects what a new clock is to know.
class ClockUnion {
 public:
  void add(const ClockPtr& clock) {
    if (clock != nullptr && std::find(clocks_.begin(), clocks_.end(), clock) == clocks_.end()) {
      clocks_.push_back(clock);
      cover(clock->first, clock->first + clock->steps.size());
    }
  }

  void add(std::uint32_t thread, std::uint32_t step) {
    own_.push_back({thread, step});
    cover(thread, std::size_t{thread} + 1);
  }

  ClockPtr result() const {
    if (own_.empty() && clocks_.size() < 2) {
      return clocks_.empty() ? nullptr : clocks_.front();
    }
    auto all = std::make_shared<Clock>();
    all->first = static_cast<std::uint32_t>(begin_);
    all->steps.resize(end_ - begin_);
    for (const ClockPtr& clock : clocks_) {
      std::uint32_t* target = all->steps.data() + (clock->first - all->first);
      for (std::size_t i = 0; i < clock->steps.size(); ++i) {
        target[i] = std::max(target[i], clock->steps[i]);
      }
    }
    for (const Own& own : own_) {
      std::uint32_t& target = all->steps[own.thread - all->first];
      target = std::max(target, own.step);
    }
    return all;
  }

 private:
  struct Own {
    std::uint32_t thread;
    std::uint32_t step;
  };

  void cover(std::size_t begin, std::size_t end) {
    begin_ = std::min(begin_, begin);
    end_ = std::max(end_, end);
  }

  std::vector<ClockPtr> clocks_;
  std::vector<Own> own_;
  std::size_t begin_ = SIZE_MAX;
  std::size_t end_ = 0;
};

}  // namespace simt::race
