// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Memory that each stream has of its own and keeps: made once, clean whenever it is used. Plain C++; what
// a stream is and how its memory is made and cleaned is the caller's business.

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace ampscaler::cuda {

/// Calls for one key from an attempt to make memory that failed to the next: an attempt takes longer than
/// the call, and may make all streams wait.
inline constexpr std::int64_t kCallsPerAttempt = 1000;

template <typename Key, typename Memory>
class StreamSlots {
 public:
  /// Calls `use(memory)`, which must leave the memory clean unless it throws. Threads with the same key take
  /// turns. `make()`, a std::optional<Memory>, is called until it has made some, but after a failure only
  /// by every kCallsPerAttempt-th call; `clean(memory)` before the first use, and again after one that threw.
  /// False, and no use, if there is no memory.
  template <typename Make, typename Clean, typename Use>
  bool use(const Key& key, const Make& make, const Clean& clean, const Use& use) {
    Slot& slot = slot_of(key);
    const std::lock_guard<std::mutex> turn(slot.in_use);
    if (!slot.memory.has_value() && slot.refusals++ % kCallsPerAttempt == 0) {
      slot.memory = make();
    }
    if (!slot.memory.has_value()) {
      return false;
    }
    if (!slot.clean) {
      clean(*slot.memory);
    }
    slot.clean = false;  // until `use` returns
    use(*slot.memory);
    slot.clean = true;
    return true;
  }

 private:
  struct Slot {
    std::mutex in_use;
    std::optional<Memory> memory;
    std::int64_t refusals = 0;  // calls that found no memory
    bool clean = false;
  };

  // Slots stay where they are when others are added.
  Slot& slot_of(const Key& key) {
    const std::lock_guard<std::mutex> lock(search_);
    return slots_[key];
  }

  std::mutex search_;
  std::map<Key, Slot> slots_;
};

}  // namespace ampscaler::cuda
