// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Which addresses were seen. For thousands of gradients this takes some microseconds, sorting the addresses
// or a std::unordered_set ten times as many: as long as the pass itself.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ampscaler::ops {

/// Open addressing with linear probing; at most half of the slots are ever taken.
class PointerSet {
 public:
  /// For at most `count` addresses.
  explicit PointerSet(std::size_t count)
      : slots_(std::bit_ceil(2 * count + 1)), shift_(64 - std::countr_zero(slots_.size())) {}

  /// False if `address`, not nullptr, was there already.
  bool insert(const void* address) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = home_of(address);
    while (slots_[slot] != nullptr) {
      if (slots_[slot] == address) {
        return false;
      }
      slot = (slot + 1) & mask;
    }
    slots_[slot] = address;
    return true;
  }

 private:
  // Fibonacci hashing (Knuth, The Art of Computer Programming 6.4): the upper bits of a product, which
  // depend on all bits of the address.
  std::size_t home_of(const void* address) const {
    constexpr std::uint64_t kGoldenRatio = 0x9E37'79B9'7F4A'7C15U;
    const auto bits = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address));
    return static_cast<std::size_t>(bits * kGoldenRatio >> static_cast<unsigned>(shift_));
  }

  std::vector<const void*> slots_;
  int shift_;
};

}  // namespace ampscaler::ops
