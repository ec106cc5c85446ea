// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The kernels of `unscale_` and `update_scale_` against a plain loop over doubles and the scale rule.

#include "simt/pass_call.h"
// The harness comes first.
#include "kernels/cuda/unscale_op.cuh"
#include "kernels/cuda/update_scale_kernels.cuh"

namespace ampscaler::cuda::test {
namespace {

struct Outcome {
  int launches;
  float found_inf;
};

Outcome unscale(const GradientList& list, float inv_scale, const Schedule& schedule,
                float found_inf = 0.0F) {
  simt::Launcher launcher = launcher_for(schedule);
  unscale_pass<kTestThreads>(launcher, plan_of(list), &inv_scale, &found_inf,
                             schedule.multiprocessors);
  return {launcher.launches, found_inf};
}

/// Unscales twice, and compares each element with the reference.
void check_unscale(GradientList& list, float inv_scale, const Schedule& schedule,
                   const std::string& what) {
  for (int round = 0; round < 2; ++round) {
    const Values before = values_of(list);
    float expected_flag = 0.0F;
    for (const std::vector<double>& values : before) {
      for (const double value : values) {
        // aten's CUDA operator narrows doubles before it tests them.
        expected_flag = std::isfinite(static_cast<float>(value)) ? expected_flag : 1.0F;
      }
    }
    const Outcome outcome = unscale(list, inv_scale, schedule);
    EXPECT_EQ(outcome.launches, 1) << what;
    EXPECT_EQ(outcome.found_inf, expected_flag) << what;
    expect_products(list, before, inv_scale, kInfinity, what);
  }
}

TEST(UnscaleKernel, MultipliesEveryElementOnceAndFlagsInputs) {
  for_each_alignment([](core::DataType dtype, int offset) {
    GradientList list = list_of(dtype, offset);
    std::size_t turn = 0;
    for (const Data data : kAllData) {
      for (const float inv_scale : {0.5F, 0.3F, 1.0F, 1024.0F}) {
        fill(list, data, 7);
        const std::vector<Schedule> all = schedules();
        const Schedule schedule = all[turn++ % all.size()];
        check_unscale(list, inv_scale, schedule, describe(dtype, offset, data, schedule.seed));
      }
    }
  });
}

TEST(UnscaleKernel, FindsANonfiniteElementAtAnyPosition) {
  for (const core::DataType dtype : kAllDtypes) {
    for (const std::int64_t size : {1, 4096, 4097, 9000}) {
      for (const std::int64_t position : {std::int64_t{0}, size / 2, size - 1}) {
        GradientList list;
        list.emplace_back(core::kFloat32, 3);
        list.emplace_back(dtype, size, position % 2 == 0 ? 0 : 8);
        fill(list, Data::kOrdinary, 9);
        list[1].set(position, position % 3 == 0 ? kNan : -kInfinity);
        EXPECT_EQ(unscale(list, 0.5F, {2, 2, 4}).found_inf, 1.0F) << size << " " << position;
      }
    }
  }
}

TEST(UnscaleKernel, NeverClearsTheFlag) {
  GradientList list = mixed_list();
  fill(list, Data::kOrdinary, 9);
  EXPECT_EQ(unscale(list, 0.5F, {2, 2, 4}, 1.0F).found_inf, 1.0F);
  EXPECT_EQ(unscale(list, 0.5F, {2, 2, 4}, 0.0F).found_inf, 0.0F);
}

TEST(UnscaleKernel, SplitsLongListsAndSkipsEmptyTensors) {
  for (const int count : {2040, 2041}) {
    GradientList list;
    for (int k = 0; k < count; ++k) {
      list.emplace_back(kAllDtypes[k % 4], 1 + k % 3);
      list.emplace_back(core::kFloat32, 0);
    }
    fill(list, Data::kOrdinary, 9);
    EXPECT_EQ(unscale(list, 0.5F, {2, 1, 2}).launches, count == 2040 ? 1 : 2);
  }
}

TEST(UnscaleKernel, NothingToDoLaunchesNothing) {
  GradientList list;
  list.emplace_back(core::kFloat32, 0);
  EXPECT_EQ(unscale(list, 0.5F, {0, 1, 1}).launches, 0);
}

TEST(UnscaleKernel, DoublesBeyondFloatCountAsOverflowAsInAten) {
  GradientList list;
  list.emplace_back(core::kFloat64, 1);
  list[0].set(0, 1e300);
  EXPECT_EQ(unscale(list, 0.5F, {0, 1, 1}).found_inf, 1.0F);
  EXPECT_EQ(list[0].get(0), 5e299);
}

TEST(UpdateScaleKernel, AppliesTheScaleRule) {
  float scale = 8.0F;
  std::int32_t tracker = 2;
  float found_inf = 0.0F;
  simt::Launcher launcher;
  const core::ScaleRule rule{2.0, 0.5, 3};
  launcher.launch(dim3(1), dim3(1), &update_scale_kernel, &scale, &tracker, &found_inf, rule,
                  core::ScaleLimits());
  EXPECT_EQ(scale, 16.0F);
  EXPECT_EQ(tracker, 0);
  found_inf = std::numeric_limits<float>::quiet_NaN();
  launcher.launch(dim3(1), dim3(1), &update_scale_kernel, &scale, &tracker, &found_inf, rule,
                  core::ScaleLimits());
  EXPECT_EQ(scale, 8.0F);
}

TEST(UpdateScaleKernel, KeepsTheScaleWithinLimits) {
  float scale = 8.0F;
  std::int32_t tracker = 2;
  float found_inf = 0.0F;
  simt::Launcher launcher;
  const core::ScaleRule rule{2.0, 0.5, 3};
  const core::ScaleLimits limits{7.0F, 12.0F};
  launcher.launch(dim3(1), dim3(1), &update_scale_kernel, &scale, &tracker, &found_inf, rule,
                  limits);
  EXPECT_EQ(scale, 12.0F);
  EXPECT_EQ(tracker, 0);
  found_inf = 1.0F;
  launcher.launch(dim3(1), dim3(1), &update_scale_kernel, &scale, &tracker, &found_inf, rule,
                  limits);
  EXPECT_EQ(scale, 7.0F);
}

}  // namespace
}  // namespace ampscaler::cuda::test
