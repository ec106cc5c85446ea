// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Grouping by device and dtype, and which gradients our own operator takes.

#include <ATen/core/LegacyTypeDispatch.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/gradient_groups.h>
#include <ampscaler/ops.h>

#include "scaler/gradients.h"

namespace ampscaler {
namespace {

TEST(GradientGroups, KeepTheOrderOfFirstAppearance) {
  GradientGroups groups;
  groups.add(at::ones({1}, at::kDouble));
  groups.add(at::ones({1}, at::kFloat));
  groups.add(at::ones({2}, at::kDouble));
  ASSERT_EQ(groups.groups().size(), 1U);
  const auto& dtypes = groups.groups()[0].dtypes;
  ASSERT_EQ(dtypes.size(), 2U);
  EXPECT_EQ(dtypes[0].dtype, at::kDouble);
  EXPECT_EQ(dtypes[0].gradients.size(), 2U);
  EXPECT_EQ(dtypes[1].dtype, at::kFloat);
}

TEST(GradientGroups, PlainGradientsAreThoseWithAKernel) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    EXPECT_TRUE(GradientGroups::is_plain(at::ones({2, 3}, dtype)));
    EXPECT_TRUE(GradientGroups::is_plain(at::ones({2, 3}, dtype).t()));
    EXPECT_TRUE(GradientGroups::is_plain(at::ones({0}, dtype)));
    EXPECT_TRUE(GradientGroups::is_plain(at::ones({1}, dtype).requires_grad_()));
  }
  EXPECT_FALSE(GradientGroups::is_plain(at::ones({2}, at::kInt)));
  EXPECT_FALSE(GradientGroups::is_plain(at::ones({2}, at::kComplexFloat)));
  EXPECT_FALSE(GradientGroups::is_plain(at::ones({2}, at::kMeta)));
  EXPECT_FALSE(GradientGroups::is_plain(at::ones({4}).slice(0, 0, 4, 2)));
  EXPECT_FALSE(GradientGroups::is_plain(at::ones({1}).expand({4})));
  EXPECT_FALSE(GradientGroups::is_plain(at::ones({2}).to_sparse()));
  EXPECT_FALSE(GradientGroups::is_plain(at::_neg_view(at::ones({2}))));
}

TEST(GradientGroups, KernelsExistForCpuAndMeta) {
  EXPECT_TRUE(ops::has_unscale_kernel(at::kCPU));
  EXPECT_TRUE(ops::has_unscale_kernel(at::kMeta));
  EXPECT_FALSE(ops::has_unscale_kernel(at::kMPS));
}

TEST(GradientGroups, OthersGoToTorchsOperator) {
  GradientGroups groups;
  const at::Tensor every_second = at::full({6}, 8.0F).slice(0, 0, 6, 2);
  const at::Tensor dense = at::full({2}, 8.0F);
  groups.add(dense);
  groups.add(every_second);
  const auto found_inf_per_device = groups.unscale_(at::full({}, 0.5F), at::zeros({}));
  EXPECT_EQ(found_inf_per_device.size(), 1U);
  EXPECT_EQ(found_inf_per_device[0].found_inf.item<float>(), 0.0F);
  EXPECT_TRUE(at::all(every_second == 4.0F).item<bool>());
  EXPECT_TRUE(at::all(dense == 4.0F).item<bool>());
}

TEST(GradientGroups, FlagsOfSeveralDevicesCombineToExactlyOne) {
  const auto flag = [](float value) {
    return DeviceFoundInf{at::Device(at::kCPU), at::full({}, value)};
  };
  const auto combined = [&](const std::vector<DeviceFoundInf>& found_inf_per_device) {
    return combine_found_inf(found_inf_per_device, at::kCPU).item<float>();
  };
  EXPECT_EQ(combined({flag(1.0F), flag(1.0F)}), 1.0F);  // a sum would be 2
  EXPECT_EQ(combined({flag(0.0F), flag(1.0F), flag(0.0F)}), 1.0F);
  EXPECT_EQ(combined({flag(0.0F), flag(0.0F)}), 0.0F);
  EXPECT_EQ(combined({}), 0.0F);
}

TEST(GradientGroups, TheGivenFlagIsCopiedAndNotWritten) {
  GradientGroups groups;
  groups.add(at::full({2}, std::numeric_limits<float>::infinity()));
  const at::Tensor found_inf = at::zeros({});
  const auto found_inf_per_device = groups.unscale_(at::ones({}), found_inf);
  EXPECT_EQ(found_inf_per_device[0].found_inf.item<float>(), 1.0F);
  EXPECT_EQ(found_inf.item<float>(), 0.0F);
}

}  // namespace
}  // namespace ampscaler
