// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Who accessed which byte of memory, as far as a later access could still conflict with it.

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace simt::race {

struct Access {
  std::uint32_t thread;
  std::uint32_t step;  // of the thread
  std::uint32_t code;  // return address; programs are linked below 4 GiB
  std::uint8_t bytes;  // which of the 8 bytes of its word
  bool is_write;
  bool is_strong;  // volatile or atomic: two of them never conflict

  bool conflicts_with(const Access& other) const {
    return (bytes & other.bytes) != 0 && thread != other.thread && (is_write || other.is_write) &&
           !(is_strong && other.is_strong);
  }
};

/// The accesses to 8 aligned bytes.
class Word {
 public:
  /// Returns an earlier access that conflicts with `access` and did not happen before it, or nothing.
  template <typename HappenedBefore>
  const Access* find_race(const Access& access, HappenedBefore happened_before) const {
    const Access* race = first_race(writes_, access, happened_before);
    return race == nullptr && access.is_write ? first_race(reads_, access, happened_before) : race;
  }

  /// `access` races with nothing.
  template <typename HappenedBefore>
  void record(const Access& access, HappenedBefore happened_before) {
    if (!access.is_write) {
      remember_read(access);
      return;
    }
    // Whatever raced with one of these would race with the new write too.
    const auto is_covered = [&](const Access& other) {
      return (other.bytes & ~access.bytes) == 0 && (other.is_strong || !access.is_strong) &&
             (other.thread == access.thread || happened_before(other));
    };
    std::erase_if(writes_, is_covered);
    std::erase_if(reads_, is_covered);
    writes_.push_back(access);
  }

 private:
  template <typename HappenedBefore>
  static const Access* first_race(const std::vector<Access>& earlier, const Access& access,
                                  HappenedBefore happened_before) {
    for (const Access& other : earlier) {
      if (other.conflicts_with(access) && !happened_before(other)) {
        return &other;
      }
    }
    return nullptr;
  }

  static bool replaces(const Access& later, const Access& earlier) {
    return later.thread == earlier.thread && later.is_strong == earlier.is_strong &&
           (earlier.bytes & ~later.bytes) == 0;
  }

  void remember_read(const Access& access) {
    if (!reads_.empty() && replaces(access, reads_.back())) {
      reads_.back() = access;
      return;
    }
    reads_.push_back(access);
    if (reads_.size() >= limit_) {
      drop_replaced_reads();
      limit_ = std::max<std::size_t>(64, 2 * reads_.size());
    }
  }

  // Keeps the last read of each thread.
  void drop_replaced_reads() {
    std::unordered_map<std::uint64_t, std::size_t> last;
    const auto key = [](const Access& access) {
      return std::uint64_t{access.thread} << 9U | std::uint64_t{access.bytes} << 1U |
             std::uint64_t{access.is_strong};
    };
    for (std::size_t i = 0; i < reads_.size(); ++i) {
      last[key(reads_[i])] = i;
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < reads_.size(); ++i) {
      if (last[key(reads_[i])] == i) {
        reads_[kept++] = reads_[i];
      }
    }
    reads_.resize(kept);
  }

  std::vector<Access> writes_;
  std::vector<Access> reads_;
  std::size_t limit_ = 64;
};

/// All words, by address.
class Shadow {
 public:
  Word& at(std::uintptr_t address) {
    const std::uintptr_t page = address / kPageBytes;
    if (page != last_page_ || last_ == nullptr) {
      std::unique_ptr<Page>& found = pages_[page];
      if (found == nullptr) {
        found = std::make_unique<Page>();
      }
      last_page_ = page;
      last_ = found.get();
    }
    return (*last_)[address % kPageBytes / 8];
  }

  void forget(std::uintptr_t address, std::size_t bytes) {
    for (std::uintptr_t word = address & ~std::uintptr_t{7}; word < address + bytes; word += 8) {
      at(word) = Word();
    }
  }

  void clear() {
    pages_.clear();
    last_ = nullptr;
  }

 private:
  static constexpr std::uintptr_t kPageBytes = 4096;
  using Page = std::array<Word, kPageBytes / 8>;

  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::uintptr_t last_page_ = 0;
  Page* last_ = nullptr;
};

}  // namespace simt::race
