// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The read-only pass: its results, bit for bit, for every dtype, alignment, kind of data and schedule, and
// that neither grid, order nor splitting changes them.

#include "simt/pass_call.h"
// The harness comes first.
#include <numeric>

namespace ampscaler::cuda::test {
namespace {

simt::Launcher run(const GradientList& list, Call& call, Workspace& workspace,
                   const Schedule& schedule) {
  simt::Launcher launcher = launcher_for(schedule);
  stats_pass<ReadOnly, kTestThreads>(launcher, plan_of(list), call.arguments(workspace),
                                     schedule.multiprocessors);
  return launcher;
}

TEST(GradStatsKernel, FindsTheSameAsTheReferenceInEverySchedule) {
  for_each_alignment([](core::DataType dtype, int offset) {
    GradientList list = list_of(dtype, offset);
    for (const Data data : kAllData) {
      fill(list, data, 11);
      const core::GradSums expected = sums_of(list);
      Workspace workspace = no_sums();
      for (const Schedule& schedule : schedules()) {
        Call call;
        call.scale = 3.0F;
        EXPECT_EQ(run(list, call, workspace, schedule).launches, 1);
        expect_results(call, expected, describe(dtype, offset, data, schedule.seed));
        expect_clean(workspace);
      }
    }
  });
}

TEST(GradStatsKernel, MixedDtypesAreOneLaunch) {
  GradientList list = mixed_list();
  for (const Data data : kAllData) {
    fill(list, data, 5);
    Workspace workspace = no_sums();
    Call call;
    call.scale = 1024.0F;
    call.divisor = 3.0;
    call.user_scale = -2.0F;
    call.max_norm = 0.01;
    call.eps = 1e-6;
    EXPECT_EQ(run(list, call, workspace, {2, 3, 4}).launches, 1);
    expect_results(call, sums_of(list), "data " + std::to_string(static_cast<int>(data)));
  }
}

/// Of the norm, against a sum in long double. The reference has the kernels' map of elements; this one has
/// nothing of them.
double relative_error(const GradientList& list) {
  long double squares = 0.0L;
  for (const Gradient& gradient : list) {
    for (const double value : gradient.values()) {
      squares += static_cast<long double>(value) * value;
    }
  }
  Workspace workspace = no_sums();
  Call call;
  call.scale = 7.0F;
  run(list, call, workspace, {0, 4, 4});
  const long double exact = std::sqrt(squares) / 7.0L;
  return std::fabs(static_cast<double>(call.stats[core::kNorm] / exact - 1.0L));
}

TEST(GradStatsKernel, NormIsWithinItsBoundOfALongDoubleSum) {
  for (const core::DataType dtype : kAllDtypes) {
    GradientList list = list_of(dtype, 0);
    fill(list, Data::kOrdinary, 23);
    EXPECT_LE(relative_error(list), norm_error(dtype)) << dtype;
  }
}

// In every group of a lane 1 comes first, and then squares that are half of its last place: each is lost,
// but for float64.
//   vector   0: 1 s s s      32: s 0 0 0      64: s 0 0 0      96: s 0 0 0         s = 2^-12
// Powers of two around which the squares of doubles are scaled, and near which they would overflow.
TEST(GradStatsKernel, NormOfManyDoublesNearTheLimitsOfTheirSquares) {
  for (const int exponent : {511, 510, 501, 500, 499, -459, -460, -461, -510, -540, -1020}) {
    GradientList list;
    list.emplace_back(core::kFloat64, 2 * core::unit_elements(core::kFloat64) + 9);
    const double value = std::ldexp(1.875, exponent);
    for (std::int64_t i = 0; i < list[0].elements(); ++i) {
      list[0].set(i, value);
    }
    Workspace workspace = no_sums();
    Call call;
    simt::Launcher launcher;
    stats_pass<ReadOnly, kTestThreads>(launcher, plan_of(list), call.arguments(workspace), 2);
    const double expected = value * std::sqrt(static_cast<double>(list[0].elements()));
    EXPECT_NEAR(call.stats[core::kNorm] / expected, 1.0, 1e-15) << "2^" << exponent;
  }
}

TEST(GradStatsKernel, NormIsWithinItsBoundWhereEveryRoundingGoesDown) {
  for (const core::DataType dtype : kAllDtypes) {
    GradientList list;
    list.emplace_back(dtype, core::unit_elements(dtype));
    const std::int64_t width = 16 / core::element_bytes(dtype);
    for (std::int64_t i = 0; i < list[0].elements(); ++i) {
      const bool in_first_vector = i / width / 32 % 4 == 0;
      const bool is_first = i % width == 0;
      list[0].set(i, in_first_vector && is_first   ? 1.0
                     : in_first_vector || is_first ? 0x1p-12
                                                   : 0.0);
    }
    const double error = relative_error(list);
    EXPECT_LE(error, norm_error(dtype)) << dtype;
    // No smaller power of two would do for float32, so the bound is not one of the CPU's.
    EXPECT_EQ(error > 0x1p-23, dtype != core::kFloat64) << dtype << " " << error;
  }
}

TEST(GradStatsKernel, NeitherOrderNorGridNorSplittingChangesABit) {
  GradientList list = mixed_list();
  fill(list, Data::kWide, 31);
  Workspace workspace = no_sums();
  Call whole;
  run(list, whole, workspace, {0, 1, 1});
  std::ranges::reverse(list);
  for (const int multiprocessors : {1, 2, 3, 7}) {
    Call reversed;
    run(list, reversed, workspace, {4, multiprocessors, 8});
    EXPECT_EQ(std::memcmp(reversed.stats, whole.stats, sizeof(whole.stats)), 0) << multiprocessors;
  }
  core::GradSums earlier = no_sums().sums;
  Call part;
  part.accumulate = &earlier;
  while (!list.empty()) {
    GradientList some;
    for (int i = 0; i < 7 && !list.empty(); ++i) {
      some.push_back(std::move(list.back()));
      list.pop_back();
    }
    run(some, part, workspace, {3, 2, 4});
  }
  EXPECT_EQ(std::memcmp(part.stats, whole.stats, sizeof(whole.stats)), 0);
  expect_clean(workspace);
}

TEST(GradStatsKernel, AccumulatedSumsAreLeftNormalised) {
  GradientList list = mixed_list();
  fill(list, Data::kOrdinary, 2);
  Workspace workspace = no_sums();
  core::GradSums earlier = no_sums().sums;
  Call call;
  call.accumulate = &earlier;
  run(list, call, workspace, {0, 2, 4});
  run(list, call, workspace, {0, 2, 4});
  core::GradSums expected = sums_of(list);
  core::merge(expected, sums_of(list));
  core::normalise(expected.limbs);
  EXPECT_EQ(std::memcmp(&earlier, &expected, sizeof(expected)), 0);
}

TEST(GradStatsKernel, LongListsAreSeveralLaunchesWithOneResult) {
  for (const std::size_t count : {std::size_t{120}, std::size_t{121}, std::size_t{2040},
                                  std::size_t{2041}, std::size_t{4100}}) {
    GradientList list;
    for (std::size_t i = 0; i < count; ++i) {
      list.emplace_back(kAllDtypes[i % 4], 1 + static_cast<std::int64_t>(i % 3));
    }
    fill(list, Data::kOrdinary, 3);
    Workspace workspace = no_sums();
    Call call;
    const simt::Launcher launcher = run(list, call, workspace, {2, 1, 2});
    EXPECT_EQ(launcher.launches, static_cast<int>((count + 2039) / 2040));
    expect_results(call, sums_of(list), std::to_string(count) + " tensors");
    expect_clean(workspace);
  }
}

TEST(GradStatsKernel, AnEmptyListHasResultsToo) {
  GradientList list;
  list.emplace_back(core::kFloat32, 0);
  Workspace workspace = no_sums();
  Call call;
  call.scale = 0.0F;  // not usable, which does not matter here
  EXPECT_EQ(run(list, call, workspace, {0, 4, 4}).launches, 1);
  expect_results(call, sums_of(list), "empty");
  EXPECT_EQ(call.factors[core::kFoundInf], 0.0F);
}

TEST(GradStatsKernel, OtherNorms) {
  GradientList list = mixed_list();
  for (const double norm_type : {kInfinity, 0.0, 1.0, 3.5}) {
    for (const Data data : {Data::kOrdinary, Data::kZeros, Data::kBoth}) {
      fill(list, data, 8);
      Workspace workspace = no_sums();
      Call call;
      call.scale = 3.0F;
      call.norm_type = norm_type;
      run(list, call, workspace, {2, 2, 4});
      expect_results(call, sums_of(list, norm_type), "norm type " + std::to_string(norm_type));
    }
  }
}

TEST(GradStatsKernel, ATensorCountsIfAnyOfItsUnitsIsNotZero) {
  GradientList list;
  list.emplace_back(core::kFloat32, 3 * core::unit_elements(core::kFloat32));
  list.emplace_back(core::kFloat32, 2 * core::unit_elements(core::kFloat32));
  list[0].set(0, 2.0);
  for (const Schedule& schedule : schedules()) {
    Workspace workspace = no_sums();
    Call call;
    call.norm_type = 0.0;
    run(list, call, workspace, schedule);
    EXPECT_EQ(call.stats[core::kNorm], 1.0);
  }
}

TEST(GradStatsKernel, ScalarsOfEveryDtype) {
  GradientList list = mixed_list();
  fill(list, Data::kOrdinary, 8);
  const core::GradSums sums = sums_of(list);
  for (const core::DataType dtype : kAllDtypes) {
    GradientList scalars;
    // The divisor, the user's scale, which torch rounds to float32, and the limit.
    for (const double value : {11.0 / 7, 10.0 / 3, 0.3}) {
      scalars.emplace_back(dtype, 1);
      scalars.back().set(0, rounded(value, dtype));
    }
    Workspace workspace = no_sums();
    Call call;
    PassArguments arguments = call.arguments(workspace);
    for (std::size_t i = 0; i < scalars.size(); ++i) {
      arguments.scalars[i] = reinterpret_cast<const void*>(scalars[i].address());
      arguments.dtypes[i] = dtype;
    }
    simt::Launcher launcher;
    stats_pass<ReadOnly, kTestThreads>(launcher, plan_of(list), arguments, 2);
    call.divisor = scalars[0].get(0);
    call.user_scale = static_cast<float>(scalars[1].get(0));
    call.max_norm = scalars[2].get(0);
    expect_results(call, sums, "dtype " + std::to_string(dtype));
  }
}

TEST(GradStatsKernel, ALimitFromTheHostAndNoScalars) {
  GradientList list = mixed_list();
  fill(list, Data::kOrdinary, 8);
  Workspace workspace = no_sums();
  Call call;
  PassArguments arguments = call.arguments(workspace, /*limit=*/0.5);
  arguments.scalars[kDivisor] = nullptr;
  arguments.scalars[kUserScale] = nullptr;
  simt::Launcher launcher;
  stats_pass<ReadOnly, kTestThreads>(launcher, plan_of(list), arguments, 2);
  call.max_norm = 0.5;
  expect_results(call, sums_of(list), "limit");
}

TEST(GradStatsKernel, WithTheThreadsOfAGpu) {
  GradientList list = mixed_list();
  fill(list, Data::kOrdinary, 8);
  Workspace workspace = no_sums();
  Call call;
  simt::Launcher launcher = launcher_for({5, 1, 2});
  stats_pass<ReadOnly>(launcher, plan_of(list), call.arguments(workspace), 1);
  expect_results(call, sums_of(list), "512 threads");
}

}  // namespace
}  // namespace ampscaler::cuda::test
