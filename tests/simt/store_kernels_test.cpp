// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The passes that write: what they store and find, bit for bit, for every dtype, alignment, kind of data
// and schedule.

#include "simt/pass_call.h"
// The harness comes first.
#include "kernels/cuda/scale_grads_op.cuh"

namespace ampscaler::cuda::test {
namespace {

void restore(GradientList& list, const Values& values) {
  for (std::size_t t = 0; t < list.size(); ++t) {
    for (std::int64_t i = 0; i < list[t].elements(); ++i) {
      list[t].set(i, values[t][static_cast<std::size_t>(i)]);
    }
  }
}

template <typename Action>
void check_pass(GradientList& list, float scale, double limit, const Schedule& schedule,
                Workspace& workspace, const std::string& what) {
  const Values before = values_of(list);
  core::GradSums sums = sums_of(list);
  Call call;
  call.scale = scale;
  simt::Launcher launcher = launcher_for(schedule);
  stats_pass<Action, kTestThreads>(launcher, plan_of(list), call.arguments(workspace, limit),
                                   schedule.multiprocessors);
  EXPECT_EQ(launcher.launches, 1);
  const float factor = core::inverse_scale(call.scaling());
  sums.overflows = expect_products(list, before, factor, limit, what);
  expect_results(call, sums, what);
  expect_clean(workspace);
  restore(list, before);
}

// +-2^-10 overflow, 0.3 is no power of two, 1 stores nothing, the last ones make zeros, inf and NaN.
constexpr float kScales[] = {4.0F, 0x1p-10F, 0.3F, 1.0F, -0x1p-10F, HUGE_VALF, 0.0F, NAN};

template <typename Action>
void check_all(double limit) {
  for_each_alignment([&](core::DataType dtype, int offset) {
    GradientList list = list_of(dtype, offset);
    Workspace workspace = no_sums();
    std::size_t turn = 0;
    for (const Data data : kAllData) {
      fill(list, data, 17);
      for (const float scale : kScales) {
        const std::vector<Schedule> all = schedules();
        const Schedule schedule = all[turn++ % all.size()];
        check_pass<Action>(
            list, scale, limit, schedule, workspace,
            describe(dtype, offset, data, schedule.seed) + " scale " + std::to_string(scale));
        if (kIsSlow && turn % 2 == 0) {
          break;
        }
      }
    }
  });
}

TEST(UnscaleWithStatsKernel, StoresProductsAndFindsWhatWasThere) { check_all<Unscale>(kInfinity); }

TEST(UnscaleClampKernel, ClampsProductsAndFindsWhatWasThere) { check_all<UnscaleClamp>(0.75); }

// The most that the counters of a lane must hold.
TEST(UnscaleWithStatsKernel, CountsWhatEveryElementOfAUnitIs) {
  for (const core::DataType dtype : kAllDtypes) {
    const double largest =
        dtype == core::kFloat64 ? std::numeric_limits<double>::max() : narrow_format(dtype).largest;
    for (const double value : {kInfinity, -kNan, largest, -0.0, 0x1p-14, 0x1p-15}) {
      GradientList list;
      list.emplace_back(dtype, (kIsSlow ? 1 : 2) * core::unit_elements(dtype) + 5);
      for (std::int64_t i = 0; i < list[0].elements(); ++i) {
        list[0].set(i, value);
      }
      Workspace workspace = no_sums();
      check_pass<Unscale>(list, 0x1p-10F, kInfinity, {1, 2, 4}, workspace,
                          describe(dtype, 0, Data::kOrdinary, 1) + " " + std::to_string(value));
    }
  }
}

TEST(UnscaleClampKernel, LimitsZeroAndInfinity) {
  for (const double limit : {0.0, kInfinity}) {
    GradientList list = mixed_list();
    Workspace workspace = no_sums();
    fill(list, Data::kBoth, 3);
    check_pass<UnscaleClamp>(list, 0.3F, limit, {2, 2, 4}, workspace, "limit");
  }
}

TEST(UnscaleWithStatsKernel, NormHasTheBitsOfTheReadOnlyPass) {
  GradientList list = mixed_list();
  fill(list, Data::kWide, 9);
  Workspace workspace = no_sums();
  Call read;
  Call unscaled;
  read.scale = unscaled.scale = 3.0F;
  simt::Launcher launcher;
  stats_pass<ReadOnly, kTestThreads>(launcher, plan_of(list), read.arguments(workspace), 2);
  stats_pass<Unscale, kTestThreads>(launcher, plan_of(list), unscaled.arguments(workspace), 2);
  EXPECT_EQ(read.stats[core::kNorm], unscaled.stats[core::kNorm]);
}

TEST(UnscaleWithStatsKernel, OtherNorms) {
  for (const double norm_type : {kInfinity, 0.0, 1.0, 3.5}) {
    GradientList list = mixed_list();
    fill(list, Data::kBoth, 8);
    const Values before = values_of(list);
    core::GradSums sums = sums_of(list, norm_type);
    Workspace workspace = no_sums();
    Call call;
    call.scale = 0.3F;
    call.norm_type = norm_type;
    simt::Launcher launcher;
    stats_pass<Unscale, kTestThreads>(launcher, plan_of(list), call.arguments(workspace), 2);
    sums.overflows = expect_products(list, before, core::inverse_scale(call.scaling()), kInfinity,
                                     "norm type " + std::to_string(norm_type));
    expect_results(call, sums, "norm type " + std::to_string(norm_type));
  }
}

// ---- scale_grads ----

int scale(const GradientList& list, float factor, float found_inf, const Schedule& schedule) {
  simt::Launcher launcher = launcher_for(schedule);
  scale_grads_pass<kTestThreads>(launcher, plan_of(list), &factor, &found_inf,
                                 schedule.multiprocessors);
  return launcher.launches;
}

// What is left to clip by is at most 1, but by which the rest of a scale is divided need not be.
constexpr float kFactors[] = {3.0F, 0.3F, NAN, -1.5F};

TEST(ScaleGradsKernel, MultipliesInPlace) {
  for_each_alignment([](core::DataType dtype, int offset) {
    GradientList list = list_of(dtype, offset);
    for (const Data data : {Data::kOrdinary, Data::kBoth, Data::kHuge, Data::kTiny}) {
      fill(list, data, 29);
      const Values before = values_of(list);
      std::size_t turn = 0;
      for (const Schedule& schedule : schedules()) {
        const float factor = kFactors[turn++ % std::size(kFactors)];
        restore(list, before);
        EXPECT_EQ(scale(list, factor, 0.0F, schedule), 1);
        expect_products(list, before, factor, kInfinity,
                        describe(dtype, offset, data, schedule.seed));
      }
    }
  });
}

TEST(ScaleGradsKernel, LeavesGradientsWithFactorOneOrFlag) {
  GradientList list = mixed_list();
  fill(list, Data::kBoth, 4);
  const Values before = values_of(list);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [factor, found_inf] :
       {std::pair(1.0F, 0.0F), std::pair(0.5F, 1.0F), std::pair(0.5F, nan)}) {
    scale(list, factor, found_inf, {2, 2, 4});
    expect_products(list, before, 1.0F, kInfinity, "left alone");
  }
  scale(list, 0.5F, -0.0F, {2, 2, 4});
  expect_products(list, before, 0.5F, kInfinity, "flag -0");
}

TEST(ScaleGradsKernel, LongListsAreSeveralLaunchesAndEmptyOnesNone) {
  GradientList list;
  EXPECT_EQ(scale(list, 0.5F, 0.0F, {0, 1, 1}), 0);
  for (int i = 0; i < 4200; ++i) {
    list.emplace_back(kAllDtypes[i % 4], i % 3);
  }
  fill(list, Data::kOrdinary, 4);
  const Values before = values_of(list);
  EXPECT_EQ(scale(list, 0.5F, 0.0F, {2, 1, 2}), 2);  // a third of them is empty
  expect_products(list, before, 0.5F, kInfinity, "long list");
}

}  // namespace
}  // namespace ampscaler::cuda::test
