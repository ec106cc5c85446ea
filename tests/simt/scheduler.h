// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The threads of a launch: which exist, which may run, what the others wait for.
//
//   blocks to start -> slots of resident blocks, each with its threads -> ready list -> a fiber runs
//          ^------------------ a slot is free when all its threads have ended ---------------'

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "simt/fiber.h"
#include "simt/intrinsics.h"
#include "simt/race.h"
#include "simt/ready_list.h"
#include "simt/simt.h"

namespace simt::detail {

inline constexpr std::uint32_t kWarpSize = 32;

/// Where a thread waits.
struct Place {
  const char* operation;
  const char* file;
  int line;

  bool operator==(const Place& other) const;
};

enum class State { kReady, kInBarrier, kInWarpOperation, kEnded };

struct Block;

struct Thread {
  Context fiber;
  Block* block = nullptr;
  dim3 index;
  std::uint32_t rank = 0;    // in its block
  std::uint32_t number = 0;  // in the grid
  State state = State::kReady;
  Place place{};         // while it waits
  int predicate = 0;     // what it brings to a barrier and gets from it
  WarpCall warp_call{};  // while it is in a warp operation
};

struct SharedVariable {
  const void* place;
  void* memory;
  std::size_t bytes;
  std::size_t alignment;
};

/// A slot, and the block that is in it.
struct Block {
  dim3 index;
  std::uint32_t number = 0;  // in the grid
  std::vector<Thread> threads;
  std::vector<std::uint32_t> warp_waits;  // per warp: the lanes in a warp operation
  std::uint32_t in_barrier = 0;
  std::uint32_t ended = 0;
  std::vector<SharedVariable> shared;
};

class Scheduler {
 public:
  Scheduler(const Grid& grid, const Options& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  Stats run();

  // ---- called on fibers ----

  Thread& current() { return *current_; }
  const Options& options() const { return options_; }
  const Grid& grid() const { return grid_; }

  /// The current thread stops until it is its turn, which it is only after wake().
  void suspend();
  void wake(Thread& thread);
  /// Lets others go first, on average once in `rarity` times; with the orderly seeds never.
  void preempt(std::size_t rarity);
  void* shared_memory(const void* place, std::size_t bytes, std::size_t alignment);
  /// Ends the launch. Nothing is thrown here: the compiler's hooks could not be unwound.
  [[noreturn]] void fail(const std::string& message);
  /// "3 thread(s) of block 0 in __syncthreads at f.cuh:12, ..."
  std::string waiting_threads(const Block* only = nullptr) const;

 private:
  static void thread_main();
  void run_thread();
  void order_blocks();
  void start_next_block(Block& slot);
  void end_block(Block& block);
  void resume(Thread& thread);

  Grid grid_;
  Options options_;
  ReadyList ready_;
  std::vector<Block> slots_;
  std::vector<std::uint32_t> to_start_;  // the next one is the last
  std::uint32_t live_blocks_ = 0;
  Context main_;
  Thread* current_ = nullptr;
  std::string error_;
  Stats stats_;
};

/// That of the launch that runs; an error elsewhere.
Scheduler& scheduler();

/// Whether `address` is on the running thread's own stack; on another thread's.
bool is_on_own_stack(const void* address);
bool is_on_any_stack(const void* address);

/// "thread 5 of block 2"
std::string name_of(const Thread& thread);

/// When a thread has ended, its block's barrier may have been waiting for it only.
void check_barrier(Block& block);

}  // namespace simt::detail
