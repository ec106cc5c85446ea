// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Which thread runs next: the seed's policy.

#include <algorithm>
#include <cstdint>
#include <deque>

namespace simt::detail {

struct Thread;

/// Small and our own: the instances of <random> may be shared with instrumented code.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {  // splitmix64
    state_ += 0x9E37'79B9'7F4A'7C15U;
    std::uint64_t bits = state_;
    bits = (bits ^ bits >> 30U) * 0xBF58'476D'1CE4'E5B9U;
    bits = (bits ^ bits >> 27U) * 0x94D0'49BB'1331'11EBU;
    return bits ^ bits >> 31U;
  }

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

 private:
  std::uint64_t state_;
};

class ReadyList {
 public:
  explicit ReadyList(std::uint64_t seed) : policy_(policy_of(seed)), random_(seed) {}

  bool empty() const { return items_.empty(); }

  void push(Thread& thread) {
    items_.push_back({random_.next(), &thread});
    if (policy_ == Policy::kPriority) {
      std::push_heap(items_.begin(), items_.end(), lower_priority);
    }
  }

  Thread& take() {
    if (policy_ == Policy::kPriority) {
      std::pop_heap(items_.begin(), items_.end(), lower_priority);
      return take_last();
    }
    if (policy_ == Policy::kReverse) {
      return take_last();
    }
    const bool any =
        policy_ == Policy::kUniform || (policy_ == Policy::kMostlyInOrder && one_in(8));
    if (any) {
      std::swap(items_[random_.below(items_.size())], items_.front());
    }
    Thread& first = *items_.front().thread;
    items_.pop_front();
    return first;
  }

  /// Whether a thread that could go on should make room, on average once in `rarity`.
  bool preempts(std::size_t rarity) { return is_random() && one_in(rarity); }

  bool is_random() const { return policy_ != Policy::kInOrder && policy_ != Policy::kReverse; }
  bool is_reverse() const { return policy_ == Policy::kReverse; }
  Random& random() { return random_; }

 private:
  enum class Policy { kInOrder, kReverse, kUniform, kPriority, kMostlyInOrder };
  struct Item {
    std::uint64_t priority;  // a new one each time
    Thread* thread;
  };

  static Policy policy_of(std::uint64_t seed) {
    if (seed < 2) {
      return seed == 0 ? Policy::kInOrder : Policy::kReverse;
    }
    const Policy random[] = {Policy::kUniform, Policy::kPriority, Policy::kMostlyInOrder};
    return random[seed % 3];
  }

  static bool lower_priority(const Item& a, const Item& b) { return a.priority < b.priority; }

  bool one_in(std::size_t rarity) { return random_.below(rarity) == 0; }

  Thread& take_last() {
    Thread& last = *items_.back().thread;
    items_.pop_back();
    return last;
  }

  Policy policy_;
  Random random_;
  std::deque<Item> items_;
};

}  // namespace simt::detail
