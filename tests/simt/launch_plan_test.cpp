// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// What each pass launches for a list: how often, with which grid, over how many units and bytes. Nothing
// runs, and nothing is read at an address, so tensors can be larger than memory. Below, passes that must
// not write run on memory that cannot be written.

#include "simt/pass_call.h"
// The harness comes first.
#include <sys/mman.h>

#include "kernels/cuda/find_nonfinite_op.cuh"
#include "kernels/cuda/grad_norms_op.cuh"
#include "kernels/cuda/scale_grads_op.cuh"
#include "kernels/cuda/unscale_op.cuh"

namespace ampscaler::cuda::test {
namespace {

constexpr int kMultiprocessors = 132;

struct Launch {
  unsigned blocks = 0;
  unsigned threads = 0;
  std::uint32_t units = 0;
  std::int64_t bytes = 0;  // of the gradients in its table
  bool has_table = false;
  PassMode mode = PassMode::kFinish;
};

/// A launcher that writes down what it is asked for.
class Recorder {
 public:
  template <typename... Parameters, typename... Arguments>
  void launch(dim3 grid, dim3 block, void (* /*kernel*/)(Parameters...),
              const Arguments&... arguments) {
    EXPECT_EQ(grid.y * grid.z * block.y * block.z, 1U);
    // In a kernel's arguments each is aligned by itself, here to 8 bytes at most.
    EXPECT_LE((((sizeof(Arguments) + 7) / 8 * 8) + ... + 0), core::kKernelArgumentBytes + 4);
    Launch launch;
    launch.blocks = grid.x;
    launch.threads = block.x;
    (note(launch, arguments), ...);
    launches.push_back(launch);
  }

  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const Launch& launch : launches) {
      sum += launch.bytes;
    }
    return sum;
  }

  std::vector<Launch> launches;

 private:
  template <int kCapacity>
  static void note(Launch& launch, const core::UnitTable<kCapacity>& table) {
    launch.has_table = true;
    launch.units = table.units;
    for (std::uint32_t i = 0; i < table.count; ++i) {
      const std::uint32_t first = i == 0 ? 0 : table.entries[i - 1].unit_end;
      const std::uint32_t end = table.entries[i].unit_end;
      if (first < end) {
        const core::Unit last = core::unit_of(table, i, end - 1);
        launch.bytes +=
            (end - first - 1) * core::kUnitBytes + last.elements * core::element_bytes(last.dtype);
      }
    }
  }
  static void note(Launch& launch, const PassArguments& arguments) { launch.mode = arguments.mode; }
  template <typename Argument>
  static void note(Launch& /*launch*/, const Argument& /*argument*/) {}
};

/// Addresses that nothing is at.
core::UnitPlan fake_plan(const std::vector<std::int64_t>& sizes, int first_dtype = 0,
                         int dtypes = 4) {
  core::UnitPlan plan;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto dtype = static_cast<std::size_t>(first_dtype) + i % static_cast<std::size_t>(dtypes);
    plan.add(0x7000'0000'0000U + (i << 20U), sizes[i], kAllDtypes[dtype]);
  }
  return plan;
}

core::UnitPlan same_sizes(std::size_t count, std::int64_t size) {
  return fake_plan(std::vector<std::int64_t>(count, size));
}

template <typename Action>
Recorder record(const core::UnitPlan& plan, double norm_type = 2.0) {
  Recorder recorder;
  PassArguments arguments;
  arguments.norm_type = norm_type;
  stats_pass<Action>(recorder, plan, arguments, kMultiprocessors);
  return recorder;
}

Recorder record_scale_grads(const core::UnitPlan& plan) {
  Recorder recorder;
  scale_grads_pass(recorder, plan, nullptr, nullptr, kMultiprocessors);
  return recorder;
}

Recorder record_unscale(const core::UnitPlan& plan) {
  Recorder recorder;
  unscale_pass(recorder, plan, nullptr, nullptr, kMultiprocessors);
  return recorder;
}

/// Every gradient is in one table once, for 512 threads a block, a unit for each warp, two blocks a multiprocessor at most.
void expect_one_sweep(const Recorder& recorder, const core::UnitPlan& plan, std::size_t launches) {
  EXPECT_EQ(recorder.launches.size(), launches);
  EXPECT_EQ(recorder.bytes(), plan.bytes());
  for (const Launch& launch : recorder.launches) {
    EXPECT_EQ(launch.threads, 512U);
    const std::uint64_t wanted = (std::uint64_t{launch.units} + 15) / 16;
    EXPECT_EQ(launch.blocks, std::clamp<std::uint64_t>(wanted, 1, 2 * kMultiprocessors));
  }
}

TEST(LaunchPlan, AnyListUpTo2040TensorsIsOneLaunchWhateverItsDtypes) {
  const std::pair<core::UnitPlan, std::size_t> lists[] = {
      {same_sizes(1, 1), 1},
      {same_sizes(300, 64), 1},
      {same_sizes(120, 70'000), 1},
      {same_sizes(121, 70'000), 1},
      {same_sizes(2040, 4096), 1},
      {same_sizes(2041, 4096), 2},
      {same_sizes(5000, 64), 3},
      {same_sizes(4080, 1), 2},
      {same_sizes(291, 23'024'055), 1},
      {fake_plan({1'500'000'000}), 1},
  };
  for (const auto& [plan, launches] : lists) {
    SCOPED_TRACE(testing::Message() << plan.entries().size() << " tensors");
    expect_one_sweep(record<ReadOnly>(plan), plan, launches);
    expect_one_sweep(record<ReadOnly>(plan, 3.5), plan, launches);
    expect_one_sweep(record<Unscale>(plan), plan, launches);
    expect_one_sweep(record<UnscaleClamp>(plan), plan, launches);
    expect_one_sweep(record_scale_grads(plan), plan, launches);
    expect_one_sweep(record_unscale(plan), plan, launches);
  }
}

TEST(LaunchPlan, OnlyTheLastLaunchOfACallDrawsConclusions) {
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{2040}, std::size_t{2041}, std::size_t{5000}}) {
    const Recorder recorder = record<ReadOnly>(same_sizes(count, 5));
    for (const Launch& launch : recorder.launches) {
      const bool last = &launch == &recorder.launches.back();
      EXPECT_EQ(launch.mode, last ? PassMode::kFinish : PassMode::kCollect);
    }
  }
}

TEST(LaunchPlan, AnEmptyListLaunchesOnlyWhereThereAreResults) {
  const core::UnitPlan plan = fake_plan({0, 0});
  EXPECT_EQ(record<ReadOnly>(plan).launches.size(), 1U);
  EXPECT_TRUE(record_scale_grads(plan).launches.empty());
  EXPECT_TRUE(record_unscale(plan).launches.empty());
}

TEST(LaunchPlan, TheGridFollowsTheGpu) {
  const core::UnitPlan plan = same_sizes(100, 1'000'000);
  for (const int multiprocessors : {1, 46, 132, 148}) {
    Recorder recorder;
    scale_grads_pass(recorder, plan, nullptr, nullptr, multiprocessors);
    EXPECT_EQ(recorder.launches[0].blocks, 2U * static_cast<unsigned>(multiprocessors));
  }
}

TEST(LaunchPlan, ResultsByTensorTakeTwoLaunchesATableOrTwoInAll) {
  for (const std::size_t count : {std::size_t{300}, std::size_t{2040}, std::size_t{5000}}) {
    const core::UnitPlan plan = same_sizes(count, 100'000);
    const std::size_t tables = (count + 2039) / 2040;
    Recorder norms;
    grad_norms_pass(norms, plan, nullptr, 2.0, nullptr, nullptr, kMultiprocessors);
    EXPECT_EQ(norms.launches.size(), 2 * tables);
    EXPECT_EQ(norms.bytes(), 2 * plan.bytes());  // both kernels get the table, only the first reads
    Recorder nonfinite;
    std::vector<std::int64_t> rows(3 * count);
    find_nonfinite_pass(nonfinite, plan, std::vector<bool>(count), rows.data(), kMultiprocessors);
    EXPECT_EQ(nonfinite.launches.size(), tables + 2);
    EXPECT_EQ(nonfinite.bytes(), plan.bytes());
  }
}

TEST(LaunchPlan, SizesBeyondThirtyTwoAndFortyBits) {
  for (const std::int64_t size :
       {(std::int64_t{1} << 31) - 1, std::int64_t{1} << 31, (std::int64_t{1} << 31) + 5,
        (std::int64_t{1} << 32) + 7, (std::int64_t{1} << 40) + 5}) {
    for (int dtype = 0; dtype < 4; ++dtype) {
      const core::UnitPlan plan = fake_plan({3, size, 1}, dtype, 1);
      expect_one_sweep(record<ReadOnly>(plan), plan, 1);
      expect_one_sweep(record_scale_grads(plan), plan, 1);
      EXPECT_EQ(plan.elements(), size + 4);
    }
  }
}

// What kernels compute from a table: pointers to units, without a step of 32 bits.
TEST(LaunchPlan, PointersToUnitsBeyondThirtyTwoAndFortyBits) {
  const std::int64_t size = (std::int64_t{1} << 40) + 5;
  core::UnitPlan plan;
  plan.add(0x10, 3, core::kFloat16);
  plan.add(0x7000'0000'0000U, size, core::kBFloat16);
  core::for_each_table(plan, [&]<int kCapacity>(const core::UnitTable<kCapacity>& table,
                                                core::TablePlace /*place*/) {
    for (const std::int64_t unit : {std::int64_t{0}, std::int64_t{1} << 17, std::int64_t{1} << 18,
                                    (size - 1) / core::unit_elements(core::kBFloat16)}) {
      const auto id = static_cast<std::uint32_t>(unit + 1);
      const auto found = reinterpret_cast<std::uint64_t>(unit_memory(table, 1, id));
      EXPECT_EQ(found, 0x7000'0000'0000U + static_cast<std::uint64_t>(unit) * 16384U);
      EXPECT_EQ(found, core::unit_of(table, 1, id).address);
    }
  });
}

TEST(LaunchPlan, IndicesOfElementsBeyondThirtyTwoAndFortyBits) {
  core::UnitPlan plan;
  plan.add(0x10, 3, core::kFloat16);
  plan.add(0x7000'0000'0000U, (std::int64_t{1} << 42) + 6, core::kBFloat16);
  core::for_each_table(plan, [&]<int kCapacity>(const core::UnitTable<kCapacity>& table,
                                                core::TablePlace /*place*/) {
    for (const std::uint64_t unit : {1ULL, 1ULL << 18U, 1ULL << 24U, 1ULL << 29U}) {
      const auto id = static_cast<std::uint32_t>(unit + 1);
      EXPECT_EQ(first_element(table, 1, id, /*width=*/1), unit * 8192U);
      EXPECT_EQ(first_element(table, 1, id, /*width=*/2), unit * 4096U);
    }
  });
  for (const std::uint64_t index : {1ULL << 30U, (1ULL << 42U) + 5U}) {
    EXPECT_EQ(finding_code(index, kNanElement) / 4, index);
    EXPECT_EQ(finding_code(index, kInfElement) % 4, static_cast<unsigned>(kInfElement));
  }
}

// ---- memory that is watched ----

/// Ordinary gradients on pages of their own, which `access` is then allowed to.
class Pages {
 public:
  Pages()
      : memory_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    for (int i = 0; i < kElements; ++i) {
      static_cast<float*>(memory_)[i] = static_cast<float>(i % 17);
    }
    plan_.add(reinterpret_cast<std::uint64_t>(memory_), kElements, core::kFloat32);
    plan_.add(reinterpret_cast<std::uint64_t>(memory_) + 4 * kElements, 99, core::kBFloat16);
  }
  ~Pages() { munmap(memory_, kBytes); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  void allow(int access) { ASSERT_EQ(mprotect(memory_, kBytes, access), 0); }
  const core::UnitPlan& plan() const { return plan_; }

 private:
  static constexpr int kElements = 9001;
  static constexpr std::size_t kBytes = 40960;
  void* memory_;
  core::UnitPlan plan_;
};

TEST(WatchedMemory, ReadOnlyPassesWriteNothing) {
  Pages pages;
  pages.allow(PROT_READ);
  simt::Launcher launcher;
  Workspace workspace = no_sums();
  for (const double norm_type : {2.0, 3.5, 0.0}) {
    Call call;
    call.norm_type = norm_type;
    stats_pass<ReadOnly, kTestThreads>(launcher, pages.plan(), call.arguments(workspace), 2);
    EXPECT_EQ(call.stats[core::kElements], 9100.0);
  }
  std::vector<UnitSums> scratch(pages.plan().unit_total());
  std::vector<float> norms(2);
  const float scale = 1.0F;
  grad_norms_pass<kTestThreads>(launcher, pages.plan(), &scale, 2.0, scratch.data(), norms.data(),
                                2);
  EXPECT_GT(norms[0], 0.0F);
  std::vector<std::int64_t> rows(6);
  find_nonfinite_pass<kTestThreads>(launcher, pages.plan(), {false, false}, rows.data(), 2);
  EXPECT_EQ(rows[0], -1);
}

TEST(WatchedMemory, UnscalingByOneWritesNothing) {
  Pages pages;
  pages.allow(PROT_READ);
  simt::Launcher launcher;
  Workspace workspace = no_sums();
  Call call;
  stats_pass<Unscale, kTestThreads>(launcher, pages.plan(), call.arguments(workspace), 2);
  EXPECT_EQ(call.stats[core::kElements], 9100.0);
}

TEST(WatchedMemory, AClipThatDoesNotBindDoesNotLookAtGradients) {
  Pages pages;
  pages.allow(PROT_NONE);
  simt::Launcher launcher;
  for (const auto& [factor, found_inf] : {std::pair(1.0F, 0.0F), std::pair(0.5F, 1.0F)}) {
    scale_grads_pass<kTestThreads>(launcher, pages.plan(), &factor, &found_inf, 2);
  }
  EXPECT_EQ(launcher.launches, 2);
}

}  // namespace
}  // namespace ampscaler::cuda::test
