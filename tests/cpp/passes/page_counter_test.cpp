// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The counter of passes sees what it is to see: known numbers of passes, and those of torch's own recipe.

#include "cpp/page_counter.h"

#include <csignal>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>

namespace ampscaler {
namespace {

using Histogram = PageCounter::Histogram;

constexpr std::size_t kPages = 12;
constexpr std::size_t kBytes = kPages * PageCounter::kPageBytes;

void read(const std::byte* memory, std::size_t bytes) {
  const volatile std::byte* volatile_memory = memory;
  for (std::size_t i = 0; i < bytes; i += 16) {
    static_cast<void>(volatile_memory[i]);
  }
}

void write(std::byte* memory, std::size_t bytes) {
  volatile std::byte* volatile_memory = memory;
  for (std::size_t i = 0; i < bytes; i += 16) {
    volatile_memory[i] = std::byte{1};
  }
}

TEST(PageCounter, CountsPasses) {
  PageCounter counter(kPages);
  EXPECT_EQ(counter.accesses([] {}), (Histogram{{0, kPages}}));
  EXPECT_EQ(counter.accesses([&] { read(counter.memory(), kBytes); }), (Histogram{{1, kPages}}));
  EXPECT_EQ(counter.accesses([&] { write(counter.memory(), kBytes); }), (Histogram{{1, kPages}}));
  EXPECT_EQ(counter.accesses([&] {
    read(counter.memory(), kBytes);
    write(counter.memory(), kBytes);
  }),
            (Histogram{{2, kPages}}));
}

TEST(PageCounter, CountsWritesOnly) {
  PageCounter counter(kPages);
  EXPECT_EQ(counter.writes([&] { read(counter.memory(), kBytes); }), (Histogram{{0, kPages}}));
  EXPECT_EQ(counter.writes([&] {
    read(counter.memory(), kBytes);
    write(counter.memory(), kBytes);
    read(counter.memory(), kBytes);
  }),
            (Histogram{{1, kPages}}));
}

TEST(PageCounter, SeesASecondPassOverEachUnit) {
  PageCounter counter(kPages);
  const std::size_t unit = 4 * PageCounter::kPageBytes;
  EXPECT_EQ(counter.accesses([&] {
    for (std::size_t begin = 0; begin < kBytes; begin += unit) {
      read(counter.memory() + begin, unit);
      read(counter.memory() + begin, unit);
    }
  }),
            (Histogram{{2, kPages}}));
}

TEST(PageCounter, SeesWhichPagesAreLeftOut) {
  PageCounter counter(kPages);
  EXPECT_EQ(counter.accesses([&] { read(counter.memory(), 5 * PageCounter::kPageBytes); }),
            (Histogram{{0, kPages - 5}, {1, 5}}));
}

TEST(PageCounter, AllowsToGoBackAndForthAcrossABorder) {
  PageCounter counter(2);
  EXPECT_EQ(counter.accesses([&] {
    for (int i = 0; i < 10; ++i) {
      read(counter.memory(), 2 * PageCounter::kPageBytes);
    }
  }),
            (Histogram{{1, 2}}));
}

TEST(PageCounter, RestoresTheHandlerBefore) {
  struct sigaction before = {};
  sigaction(SIGSEGV, nullptr, &before);
  PageCounter counter(1);
  EXPECT_THROW(counter.accesses([] { throw std::bad_alloc(); }), std::bad_alloc);
  struct sigaction after = {};
  sigaction(SIGSEGV, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  write(counter.memory(), PageCounter::kPageBytes);  // open again
}

TEST(PageCounterDeathTest, LeavesOtherFaultsAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const PageCounter other(1);
  PageCounter counter(1);
  mprotect(other.memory(), PageCounter::kPageBytes, PROT_NONE);
  EXPECT_EXIT(counter.accesses([&] { read(other.memory(), 1); }), testing::KilledBySignal(SIGSEGV),
              "");
}

// Unscale, norm, multiply: what the one-pass operators are measured against.
TEST(PageCounter, CountsThreePassesOfTorchsRecipe) {
  at::set_num_threads(1);
  PageCounter counter(kPages);
  const auto elements = static_cast<std::int64_t>(kBytes / sizeof(float));
  const at::Tensor gradient = at::from_blob(counter.memory(), {elements}, at::kFloat).fill_(0.5);
  const at::Tensor parameter = at::zeros({elements}).set_requires_grad(true);
  parameter.mutable_grad() = gradient;
  at::Tensor found_inf = at::zeros({});
  const at::Tensor inv_scale = at::scalar_tensor(0.5F);
  const auto recipe = [&] {
    at::_amp_foreach_non_finite_check_and_unscale_({gradient}, found_inf, inv_scale);
    torch::nn::utils::clip_grad_norm_({parameter}, 1e9);
  };
  EXPECT_EQ(counter.accesses(recipe), (Histogram{{3, kPages}}));
  EXPECT_EQ(counter.writes(recipe), (Histogram{{2, kPages}}));
}

}  // namespace
}  // namespace ampscaler
