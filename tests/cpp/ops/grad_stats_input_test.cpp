// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// `grad_stats` on the CPU: every layout and dtype of input, what it reads and on which threads, and what
// it must not touch.

#include <fstream>
#include <set>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/ops/_lazy_clone.h>
#include <c10/core/impl/COW.h>
#include <gtest/gtest.h>

#include "cpp/guarded_memory.h"
#include "cpp/ops/gradients.h"

namespace ampscaler {
namespace {

TEST(GradStatsInput, EveryLayoutIsReadElementByElement) {
  at::manual_seed(28);
  const at::Tensor base = at::randn({6, 10, 8, 4}).to(at::kBFloat16);
  const Gradients views{base.transpose(0, 2),
                        base.slice(1, 0, 10, 3),
                        base.select(2, 3),
                        base[2][1][0][1],
                        base.permute({2, 0, 3, 1}),
                        base.contiguous(at::MemoryFormat::ChannelsLast),
                        base.select(0, 0).unsqueeze(0).expand({5, 10, 8, 4}),
                        base.as_strided({4, 3}, {20, 5})};
  for (const at::Tensor& view : views) {
    expect_true_stats({view}, 2.0, kTwoLevelError);
  }
}

TEST(GradStatsInput, ComplexGradientsArePairsOfReals) {
  at::manual_seed(29);
  for (const auto dtype : {at::kComplexHalf, at::kComplexFloat, at::kComplexDouble}) {
    const at::Tensor grad = at::randn({3000}, at::kComplexDouble).to(dtype);
    expect_true_stats({grad, at::ones({5})}, 4.0, kTwoLevelError);
    const at::Tensor pairs = at::view_as_real(grad).clone();
    EXPECT_TRUE(
        same_results(ops::grad_stats({grad}, scalar(3.0)), ops::grad_stats({pairs}, scalar(3.0))));
  }
}

TEST(GradStatsInput, ListsOfThousandsOfTensors) {
  at::manual_seed(30);
  Gradients grads;
  for (std::int64_t i = 0; i < 5000; ++i) {
    const auto dtype = i % 4 == 0   ? at::kFloat
                       : i % 4 == 1 ? at::kHalf
                       : i % 4 == 2 ? at::kDouble
                                    : at::kBFloat16;
    grads.push_back(at::randn({i % 61}).to(dtype));
  }
  expect_true_stats(grads, 3.0, kTwoLevelError);
}

TEST(GradStatsInput, ReadsOnlyAndWithEveryThread) {
  const std::int64_t elements = 1 << 20;
  const auto memory = std::make_unique<GuardedMemory>(elements * 4);
  const at::Tensor grad = memory->tensor({elements}, at::kFloat).fill_(2.0);
  for (const std::size_t threads : {1, 2}) {
    const ThreadsGuard guard(static_cast<int>(threads));
    norm_of({grad});  // the pool exists
    double norm = 0.0;
    EXPECT_EQ(threads_seen(*memory, threads, [&] { norm = norm_of({grad}); }), threads);
    EXPECT_EQ(norm, 2048.0);
    EXPECT_EQ(memory->accesses(), elements * 4 / GuardedMemory::kPageBytes);
    EXPECT_EQ(memory->writes(), 0);
  }
}

// A second one would bring a second pool of threads.
TEST(GradStatsInput, TheProcessHasOneOpenMpRuntime) {
  std::set<std::string> runtimes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    for (const char* name : {"/libgomp", "/libomp", "/libiomp"}) {
      if (line.find(name) != std::string::npos) {
        runtimes.insert(line.substr(line.find('/')));
      }
    }
  }
  EXPECT_EQ(runtimes.size(), 1) << testing::PrintToString(runtimes);
}

TEST(GradStatsInput, ASmallListStaysOnTheCallingThread) {
  const ThreadsGuard guard(2);
  const auto memory = std::make_unique<GuardedMemory>(64 * 1024);
  const at::Tensor grad = memory->tensor({16 * 1024}, at::kFloat).fill_(2.0);
  memory->watch();
  norm_of({grad});
  memory->unwatch();
  EXPECT_EQ(memory->threads(), std::set<pid_t>{gettid()});
}

TEST(GradStatsInput, InsideAParallelRegionItIsSerial) {
  const at::Tensor grad = at::full({1 << 20}, 2.0F);
  std::vector<double> norms(2);
  at::parallel_for(0, 2, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      norms[static_cast<std::size_t>(i)] = norm_of({grad});
    }
  });
  EXPECT_EQ(norms, (std::vector<double>{2048.0, 2048.0}));
}

TEST(GradStatsInput, LeavesLazyClonesLazyAndVersionsAlone) {
  const at::Tensor grad = at::randn({100});
  const at::Tensor lazy = at::_lazy_clone(grad);
  const Gradients grads{lazy, at::randn({4, 6}).t(), at::randn({10}).slice(0, 0, 10, 2)};
  const std::vector<std::int64_t> before = versions_of(grads);
  norm_of(grads);
  EXPECT_TRUE(c10::impl::cow::is_cow_data_ptr(lazy.storage().data_ptr()));
  EXPECT_EQ(versions_of(grads), before);
}

TEST(GradStatsInput, GradientsThatShareMemoryAreRefused) {
  const at::Tensor grad = at::ones({10});
  EXPECT_THROW(norm_of({grad, grad.slice(0, 5)}), c10::ValueError);
  EXPECT_THROW(norm_of({grad, at::ones({1}), grad}), c10::ValueError);
}

TEST(GradStatsInput, AnErrorLeavesTheSumsOfEarlierCalls) {
  ops::GradStatsOptions options;
  options.accumulate = at::zeros({core::kGradSumsWords}, at::kLong);
  ops::grad_stats({at::ones({4})}, scalar(1.0), options);
  const at::Tensor before = options.accumulate->clone();
  const std::int64_t version = options.accumulate->_version();
  EXPECT_ANY_THROW(
      ops::grad_stats({at::ones({4}), at::ones({2}, at::kLong)}, scalar(1.0), options));
  EXPECT_TRUE(at::equal(*options.accumulate, before));
  EXPECT_EQ(options.accumulate->_version(), version);
}

}  // namespace
}  // namespace ampscaler
