// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Starts blocks and lets their threads take turns, see scheduler.h.

#include "simt/scheduler.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <tuple>
#include <utility>

dim3 threadIdx;
dim3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace simt::detail {

bool device_code_runs = false;

namespace {

constexpr std::size_t kMaxThreadsPerBlock = 1024;
constexpr std::size_t kMaxSharedBytes = 48 * 1024;
// Behind each shared variable, to be read as NaN; AddressSanitizer has its own means.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kPoisonBytes = 0;
#else
constexpr std::size_t kPoisonBytes = 64;
#endif

Scheduler* running = nullptr;

Stacks& stacks() {
  static Stacks all;
  return all;
}

std::size_t volume(dim3 shape) { return std::size_t{shape.x} * shape.y * shape.z; }

dim3 position(std::size_t number, dim3 shape) {
  return {static_cast<unsigned>(number % shape.x),
          static_cast<unsigned>(number / shape.x % shape.y),
          static_cast<unsigned>(number / shape.x / shape.y)};
}

std::string text(dim3 shape) {
  return "(" + std::to_string(shape.x) + ", " + std::to_string(shape.y) + ", " +
         std::to_string(shape.z) + ")";
}

void check_launch(const Grid& grid, const Options& options) {
  if (running != nullptr) {
    throw Error("launch: a kernel launched a kernel");
  }
  const std::size_t threads = volume(grid.block);
  if (threads == 0 || threads > kMaxThreadsPerBlock) {
    throw Error("launch: expected 1 to 1024 threads per block, got " + text(grid.block));
  }
  if (volume(grid.grid) == 0 || volume(grid.grid) > UINT32_MAX / threads) {
    throw Error("launch: expected at least 1 block and less than 2^32 threads, got " +
                text(grid.grid) + " blocks");
  }
  if (options.resident_blocks < 1) {
    throw Error("launch: resident_blocks: expected at least 1, got " +
                std::to_string(options.resident_blocks));
  }
}

}  // namespace

Scheduler& scheduler() {
  if (running == nullptr) {
    throw Error("a device function was called outside of a kernel");
  }
  return *running;
}

bool Place::operator==(const Place& other) const {
  const auto same = [](const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; };
  return line == other.line && same(operation, other.operation) && same(file, other.file);
}

std::string name_of(const Thread& thread) {
  return "thread " + std::to_string(thread.rank) + " of block " +
         std::to_string(thread.block->number);
}

bool is_on_any_stack(const void* address) { return stacks().contains(address); }

bool is_on_own_stack(const void* address) {
  const Context& fiber = scheduler().current().fiber;
  const auto distance = static_cast<std::size_t>(static_cast<const char*>(address) -
                                                 static_cast<const char*>(fiber.stack));
  return distance < fiber.stack_bytes;
}

Scheduler::Scheduler(const Grid& grid, const Options& options)
    : grid_(grid), options_(options), ready_(options.seed) {
  check_launch(grid, options);
  const std::size_t blocks = volume(grid.grid);
  const std::size_t block_size = volume(grid.block);
  const std::size_t resident = std::min(blocks, static_cast<std::size_t>(options.resident_blocks));
  if (!stacks().reserve(resident * block_size, options.stack_bytes)) {
    throw Error("launch: no address space for " + std::to_string(resident * block_size) +
                " stacks");
  }
  const std::string refusal = race::begin(blocks * block_size, block_size, grid);
  if (!refusal.empty()) {
    throw Error("launch: " + refusal);
  }
  slots_.resize(resident);
  for (Block& slot : slots_) {
    slot.threads.resize(block_size);
    slot.warp_waits.resize((block_size + kWarpSize - 1) / kWarpSize);
  }
  order_blocks();
  blockDim = grid.block;
  gridDim = grid.grid;
  running = this;
}

Scheduler::~Scheduler() {
  for (Block& slot : slots_) {
    end_block(slot);
  }
  running = nullptr;
}

void Scheduler::order_blocks() {
  const std::size_t blocks = volume(grid_.grid);
  to_start_.resize(blocks);
  for (std::size_t i = 0; i < blocks; ++i) {
    to_start_[i] = static_cast<std::uint32_t>(ready_.is_reverse() ? i : blocks - 1 - i);
  }
  for (std::size_t i = blocks - 1; ready_.is_random() && i > 0; --i) {
    std::swap(to_start_[i], to_start_[ready_.random().below(i + 1)]);
  }
}

void Scheduler::start_next_block(Block& slot) {
  if (to_start_.empty()) {
    return;
  }
  slot.number = to_start_.back();
  to_start_.pop_back();
  slot.index = position(slot.number, grid_.grid);
  slot.in_barrier = 0;
  slot.ended = 0;
  ++live_blocks_;
  const auto first_stack = static_cast<std::size_t>(&slot - slots_.data()) * slot.threads.size();
  for (std::size_t rank = 0; rank < slot.threads.size(); ++rank) {
    Thread& thread = slot.threads[rank];
    thread.block = &slot;
    thread.index = position(rank, grid_.block);
    thread.rank = static_cast<std::uint32_t>(rank);
    thread.number = static_cast<std::uint32_t>(slot.number * slot.threads.size() + rank);
    // Not all at the same offset in a page, where they would share a few sets of the cache.
    const std::size_t colour = rank % 32 * 64;
    prepare(thread.fiber, stacks().at(first_stack + rank), stacks().bytes() - colour, &thread_main);
    wake(thread);
  }
  stats_.threads += static_cast<std::int64_t>(slot.threads.size());
}

void Scheduler::end_block(Block& block) {
  for (const SharedVariable& variable : block.shared) {
    race::forget(variable.memory, variable.bytes);
    ::operator delete(variable.memory, std::align_val_t{variable.alignment});
  }
  block.shared.clear();
}

Stats Scheduler::run() {
  for (Block& slot : slots_) {
    start_next_block(slot);
  }
  while (error_.empty() && live_blocks_ > 0) {
    if (ready_.empty()) {
      throw Error("deadlock: " + waiting_threads());
    }
    Thread& thread = ready_.take();
    resume(thread);
    Block& block = *thread.block;
    if (error_.empty() && block.ended == block.threads.size()) {
      --live_blocks_;
      end_block(block);
      start_next_block(block);
    }
  }
  if (!error_.empty()) {
    throw Error(error_);
  }
  return stats_;
}

void Scheduler::resume(Thread& thread) {
  current_ = &thread;
  threadIdx = thread.index;
  blockIdx = thread.block->index;
  ++stats_.switches;
  switch_context(main_, thread.fiber);
  current_ = nullptr;
}

void Scheduler::thread_main() { scheduler().run_thread(); }

// The root of every fiber.
void Scheduler::run_thread() {
  try {
    device_code_runs = true;
    grid_.run_thread(grid_.context);
    device_code_runs = false;
  } catch (const std::exception& error) {
    device_code_runs = false;
    error_ = name_of(*current_) + " threw: " + error.what();
  } catch (...) {
    device_code_runs = false;
    error_ = name_of(*current_) + " threw something";
  }
  current_->state = State::kEnded;
  ++current_->block->ended;
  if (error_.empty()) {
    check_barrier(*current_->block);
  }
  leave_for(main_);
}

void Scheduler::suspend() { switch_context(current_->fiber, main_); }

void Scheduler::wake(Thread& thread) {
  thread.state = State::kReady;
  ready_.push(thread);
}

void Scheduler::preempt(std::size_t rarity) {
  if (ready_.preempts(rarity)) {
    wake(*current_);
    suspend();
  }
}

void Scheduler::fail(const std::string& message) {
  error_ = message;
  leave_for(main_);
}

void* Scheduler::shared_memory(const void* place, std::size_t bytes, std::size_t alignment) {
  Block& block = *current_->block;
  std::size_t used = bytes;
  for (const SharedVariable& variable : block.shared) {
    if (variable.place == place) {
      return variable.memory;
    }
    used += variable.bytes;
  }
  if (used > kMaxSharedBytes) {
    fail("shared memory: a block may have " + std::to_string(kMaxSharedBytes) +
         " bytes, asked for " + std::to_string(used));
  }
  const std::size_t aligned = std::max(alignment, alignof(std::max_align_t));
  const std::size_t all_bytes = bytes + kPoisonBytes;
  void* memory = ::operator new(all_bytes, std::align_val_t{aligned});
  std::memset(memory, 0xFF, all_bytes);  // NaN in every floating-point type
  race::forget(memory, bytes);
  block.shared.push_back({place, memory, bytes, aligned});
  return memory;
}

std::string Scheduler::waiting_threads(const Block* only) const {
  using Key = std::tuple<std::uint32_t, std::string, int, std::string>;
  std::map<Key, int> counts;
  for (const Block& block : slots_) {
    if (only != nullptr && only != &block) {
      continue;
    }
    for (const Thread& thread : block.threads) {
      if (thread.block == nullptr ||
          (thread.state == State::kEnded && block.ended == block.threads.size())) {
        continue;
      }
      if (thread.state == State::kEnded) {
        ++counts[{block.number, "", 0, "ended"}];
      } else if (thread.state != State::kReady) {
        ++counts[{block.number, thread.place.file, thread.place.line, thread.place.operation}];
      }
    }
  }
  std::string result;
  for (const auto& [key, count] : counts) {
    const auto& [block, file, line, operation] = key;
    result += (result.empty() ? "" : ", ") + std::to_string(count) + " thread(s) of block " +
              std::to_string(block);
    result +=
        line == 0 ? " ended" : " in " + operation + " at " + file + ":" + std::to_string(line);
  }
  return result;
}

Stats run_grid(const Grid& grid, const Options& options) {
  Scheduler launch(grid, options);
  return launch.run();
}

void* shared_memory(const void* place, std::size_t bytes, std::size_t alignment) {
  const HarnessScope scope;
  return scheduler().shared_memory(place, bytes, alignment);
}

void preemption_point() {
  const HarnessScope scope;
  scheduler().preempt(2);
}

}  // namespace simt::detail
