// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Barriers and warp operations. The thread that arrives last checks that all are in the same
// operation on the same line, computes everyone's result and wakes the others.

#include <algorithm>
#include <cstring>

#include "simt/scheduler.h"

namespace simt::detail {
namespace {

constexpr const char* kWarpNames[] = {"__syncwarp",       "__shfl_sync",     "__shfl_up_sync",
                                      "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync",
                                      "__any_sync",       "__all_sync"};

// ---- barriers ----

void complete_barrier(Block& block) {
  Scheduler& all = scheduler();
  const Thread* first = nullptr;
  int count = 0;
  std::vector<std::uint32_t> members;
  for (const Thread& thread : block.threads) {
    if (thread.state != State::kInBarrier) {
      continue;
    }
    first = first == nullptr ? &thread : first;
    if (!(thread.place == first->place)) {
      all.fail("barrier divergence: " + all.waiting_threads(&block));
    }
    count += thread.predicate != 0 ? 1 : 0;
    members.push_back(thread.number);
  }
  if (members.size() < block.threads.size() && !all.options().allow_exited_at_barrier) {
    all.fail("barrier after threads have ended: " + all.waiting_threads(&block));
  }
  int result = count;
  if (std::strcmp(first->place.operation, "__syncthreads_or") == 0) {
    result = count > 0 ? 1 : 0;
  } else if (std::strcmp(first->place.operation, "__syncthreads_and") == 0) {
    result = count == static_cast<int>(members.size()) ? 1 : 0;
  }
  race::join(members);
  block.in_barrier = 0;
  for (Thread& thread : block.threads) {
    if (thread.state == State::kInBarrier) {
      thread.predicate = result;
      all.wake(thread);
    }
  }
}

int barrier(int predicate, const Place& place) {
  const HarnessScope scope;
  Scheduler& all = scheduler();
  Thread& self = all.current();
  self.predicate = predicate;
  self.place = place;
  self.state = State::kInBarrier;
  ++self.block->in_barrier;
  check_barrier(*self.block);
  all.suspend();
  return self.predicate;
}

// ---- warp operations ----

// The threads of a warp, by lane.
class Warp {
 public:
  explicit Warp(Thread& member)
      : first_(member.block->threads.data() + member.rank / kWarpSize * kWarpSize),
        lanes_(std::min<std::size_t>(
            kWarpSize, member.block->threads.size() - member.rank / kWarpSize * kWarpSize)) {}

  std::size_t lanes() const { return lanes_; }
  Thread& at(std::size_t lane) { return first_[lane]; }

  template <typename Function>
  void for_each(unsigned mask, Function function) {
    for (std::size_t lane = 0; lane < lanes_; ++lane) {
      if ((mask >> lane & 1U) != 0) {
        function(at(lane), lane);
      }
    }
  }

 private:
  Thread* first_;
  std::size_t lanes_;
};

std::string text(unsigned mask) {
  char buffer[16];
  std::snprintf(buffer, sizeof(buffer), "0x%08x", mask);
  return buffer;
}

[[noreturn]] void refuse(const Thread& self, const std::string& why) {
  scheduler().fail(std::string(self.place.operation) + " at " + self.place.file + ":" +
                   std::to_string(self.place.line) + ": " + name_of(self) + why);
}

void check_call(const Warp& warp, const Thread& self) {
  const WarpCall& call = self.warp_call;
  const unsigned lane = self.rank % kWarpSize;
  if ((call.mask >> lane & 1U) == 0) {
    refuse(self, " is lane " + std::to_string(lane) + ", outside of its mask " + text(call.mask));
  }
  if (warp.lanes() < kWarpSize && call.mask >> warp.lanes() != 0) {
    refuse(self, ": the mask " + text(call.mask) + " names lanes beyond the " +
                     std::to_string(warp.lanes()) + " of the warp");
  }
  if (call.width < 1 || call.width > 32 || (call.width & (call.width - 1)) != 0) {
    refuse(self, ": the width must be a power of two up to 32, got " + std::to_string(call.width));
  }
}

// The lane whose value `lane` gets, as in PTX: out of the segment means its own.
std::size_t source_lane(const WarpCall& call, std::size_t lane) {
  const auto self = static_cast<int>(lane);
  const int segment = self / call.width * call.width;
  int source = self;
  switch (call.operation) {
    case WarpOperation::kShuffle:
      source = segment + (call.argument & (call.width - 1));
      break;
    case WarpOperation::kShuffleUp:
      source = self - (call.argument & 31);
      source = source < segment ? self : source;
      break;
    case WarpOperation::kShuffleDown:
      source = self + (call.argument & 31);
      break;
    case WarpOperation::kShuffleXor:
      source = self ^ (call.argument & 31);
      break;
    default:
      break;
  }
  return static_cast<std::size_t>(source >= segment + call.width ? self : source);
}

void complete_shuffle(Warp& warp, const WarpCall& call) {
  constexpr std::size_t kMaxBytes = 16;
  unsigned char brought[kWarpSize][kMaxBytes];
  std::memset(brought, 0xFF, sizeof(brought));  // what absent lanes give: NaN
  warp.for_each(call.mask, [&](Thread& thread, std::size_t lane) {
    std::memcpy(brought[lane], thread.warp_call.value, call.bytes);
  });
  warp.for_each(call.mask, [&](Thread& thread, std::size_t lane) {
    std::memcpy(thread.warp_call.value, brought[source_lane(thread.warp_call, lane)], call.bytes);
  });
}

void complete_vote(Warp& warp, const WarpCall& call) {
  unsigned votes = 0;
  warp.for_each(call.mask, [&](Thread& thread, std::size_t lane) {
    int predicate = 0;
    std::memcpy(&predicate, thread.warp_call.value, sizeof(predicate));
    votes |= predicate != 0 ? 1U << lane : 0U;
  });
  unsigned result = votes;
  if (call.operation == WarpOperation::kAny) {
    result = votes != 0 ? 1 : 0;
  } else if (call.operation == WarpOperation::kAll) {
    result = votes == call.mask ? 1 : 0;
  }
  warp.for_each(call.mask, [&](Thread& thread, std::size_t /*lane*/) {
    std::memcpy(thread.warp_call.value, &result, sizeof(result));
  });
}

// Lanes that wait with another mask are in an earlier operation of a part of the warp.
bool is_complete(Warp& warp, unsigned mask) {
  bool result = true;
  warp.for_each(mask, [&](const Thread& thread, std::size_t /*lane*/) {
    result = result && thread.warp_call.mask == mask;
  });
  return result;
}

void complete_warp_operation(Warp& warp, const Thread& self) {
  Scheduler& all = scheduler();
  const WarpCall& call = self.warp_call;
  std::vector<std::uint32_t> members;
  warp.for_each(call.mask, [&](Thread& thread, std::size_t /*lane*/) {
    const WarpCall& other = thread.warp_call;
    if (!(thread.place == self.place) || other.bytes != call.bytes || other.width != call.width) {
      all.fail("warp divergence, mask " + text(call.mask) + ": " + all.waiting_threads(self.block));
    }
    members.push_back(thread.number);
  });
  if (call.operation == WarpOperation::kSync) {
    race::join(members);
  } else if (call.operation >= WarpOperation::kBallot) {
    complete_vote(warp, call);
  } else {
    complete_shuffle(warp, call);
  }
  warp.for_each(call.mask, [&](Thread& thread, std::size_t /*lane*/) { all.wake(thread); });
}

unsigned vote(WarpOperation operation, unsigned mask, int predicate, const char* file, int line) {
  unsigned value = predicate != 0 ? 1 : 0;
  warp_operation({operation, mask, 0, 32, sizeof(value), &value}, file, line);
  return value;
}

}  // namespace

void check_barrier(Block& block) {
  if (block.in_barrier > 0 && block.in_barrier + block.ended == block.threads.size()) {
    complete_barrier(block);
  }
}

void warp_operation(const WarpCall& call, const char* file, int line) {
  const HarnessScope scope;
  Scheduler& all = scheduler();
  Thread& self = all.current();
  Warp warp(self);
  self.warp_call = call;
  self.place = {kWarpNames[static_cast<int>(call.operation)], file, line};
  self.state = State::kInWarpOperation;
  check_call(warp, self);
  std::uint32_t& waits = self.block->warp_waits[self.rank / kWarpSize];
  waits |= 1U << self.rank % kWarpSize;
  if ((waits & call.mask) == call.mask && is_complete(warp, call.mask)) {
    waits &= ~call.mask;
    complete_warp_operation(warp, self);
  }
  all.suspend();
}

}  // namespace simt::detail

// ---- CUDA's names ----

using simt::detail::WarpOperation;

void __syncthreads(const char* file, int line) {
  simt::detail::barrier(0, {"__syncthreads", file, line});
}

int __syncthreads_or(int predicate, const char* file, int line) {
  return simt::detail::barrier(predicate, {"__syncthreads_or", file, line});
}

int __syncthreads_and(int predicate, const char* file, int line) {
  return simt::detail::barrier(predicate, {"__syncthreads_and", file, line});
}

int __syncthreads_count(int predicate, const char* file, int line) {
  return simt::detail::barrier(predicate, {"__syncthreads_count", file, line});
}

void __syncwarp(unsigned mask, const char* file, int line) {
  simt::detail::warp_operation({WarpOperation::kSync, mask, 0, 32, 0, nullptr}, file, line);
}

unsigned __ballot_sync(unsigned mask, int predicate, const char* file, int line) {
  return simt::detail::vote(WarpOperation::kBallot, mask, predicate, file, line);
}

int __any_sync(unsigned mask, int predicate, const char* file, int line) {
  return static_cast<int>(simt::detail::vote(WarpOperation::kAny, mask, predicate, file, line));
}

int __all_sync(unsigned mask, int predicate, const char* file, int line) {
  return static_cast<int>(simt::detail::vote(WarpOperation::kAll, mask, predicate, file, line));
}
