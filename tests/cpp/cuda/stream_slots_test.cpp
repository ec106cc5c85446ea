// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Memory per stream: made once, clean before every use whatever happened, never used by two at a time.

#include "kernels/cuda/stream_slots.h"

#include <atomic>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace ampscaler::cuda {
namespace {

class StreamSlotsTest : public ::testing::Test {
 protected:
  bool use(int key, const std::function<void(int*)>& body) {
    const auto make = [&]() -> std::optional<int*> {
      ++made;
      return has_memory ? std::optional<int*>(new int(-1)) : std::nullopt;
    };
    const auto clean = [&](int* memory) {
      ++cleaned;
      *memory = 0;
    };
    return slots.use(key, make, clean, body);
  }

  StreamSlots<int, int*> slots;
  bool has_memory = true;
  int made = 0;
  int cleaned = 0;
};

TEST_F(StreamSlotsTest, MemoryIsMadeAndCleanedOncePerKey) {
  std::vector<int*> seen;
  for (const int key : {1, 2, 1, 1, 2}) {
    EXPECT_TRUE(use(key, [&](int* memory) {
      EXPECT_EQ(*memory, 0);
      seen.push_back(memory);
    }));
  }
  EXPECT_EQ(made, 2);
  EXPECT_EQ(cleaned, 2);
  EXPECT_EQ(seen, (std::vector<int*>{seen[0], seen[1], seen[0], seen[0], seen[1]}));
  EXPECT_NE(seen[0], seen[1]);
}

TEST_F(StreamSlotsTest, WhatAnErrorLeavesIsCleanedBeforeTheNextUse) {
  use(1, [](int*) {});
  EXPECT_THROW(use(1,
                   [](int* memory) {
                     *memory = 7;
                     throw std::runtime_error("launch");
                   }),
               std::runtime_error);
  use(1, [](int* memory) { EXPECT_EQ(*memory, 0); });
  use(1, [](int*) {});
  EXPECT_EQ(made, 1);
  EXPECT_EQ(cleaned, 2);
}

TEST_F(StreamSlotsTest, WithoutMemoryNothingIsUsedAndFewCallsTryAgain) {
  has_memory = false;
  for (std::int64_t call = 0; call < 2 * kCallsPerAttempt; ++call) {
    EXPECT_FALSE(use(1, [](int*) { FAIL(); }));
    EXPECT_EQ(made, call / kCallsPerAttempt + 1);
  }
  has_memory = true;
  EXPECT_TRUE(use(2, [](int*) {}));  // another stream has attempts of its own
  EXPECT_TRUE(use(1, [](int* memory) { EXPECT_EQ(*memory, 0); }));
  EXPECT_TRUE(use(1, [](int*) {}));
  EXPECT_EQ(made, 4);
}

TEST_F(StreamSlotsTest, ThreadsTakeTurns) {
  std::atomic<int> inside = 0;
  std::atomic<int> collisions = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        use(1, [&](int*) {
          collisions += inside.fetch_add(1) > 0 ? 1 : 0;
          std::this_thread::yield();
          inside.fetch_sub(1);
        });
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(collisions, 0);
  EXPECT_EQ(made, 1);
}

TEST_F(StreamSlotsTest, StreamsDoNotWaitForEachOther) {
  use(1, [&](int*) {
    std::thread other([&] { EXPECT_TRUE(use(2, [](int*) {})); });
    other.join();
  });
}

}  // namespace
}  // namespace ampscaler::cuda
