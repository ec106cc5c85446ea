// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Grouping by device and dtype, and which gradients our own operator takes.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/TensorImpl.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/gradient_groups.h>
#include <ampscaler/ops.h>

#include "cpp/scaler/training.h"
#include "scaler/gradients.h"

namespace ampscaler {
namespace {

// Counts the calls of ampscaler::unscale_ on this thread.
class UnscaleCalls {
 public:
  UnscaleCalls()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&note).scopes({at::RecordScope::FUNCTION}))) {
    count() = 0;
  }
  ~UnscaleCalls() { at::removeCallback(handle_); }
  UnscaleCalls(const UnscaleCalls&) = delete;
  UnscaleCalls& operator=(const UnscaleCalls&) = delete;

  static int& count() {
    static thread_local int calls = 0;
    return calls;
  }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    count() += std::string(function.name()) == "ampscaler::unscale_" ? 1 : 0;
    return nullptr;
  }

  at::CallbackHandle handle_;
};

// A bfloat16 gradient in CUDA memory, but for the memory: nobody may touch it.
at::Tensor make_cuda_bfloat16() {
  at::Tensor made_up = at::detail::make_tensor<c10::TensorImpl>(
      c10::DispatchKeySet({c10::DispatchKey::CUDA, c10::DispatchKey::AutogradCUDA,
                           c10::DispatchKey::ADInplaceOrView}),
      caffe2::TypeMeta::fromScalarType(at::kBFloat16), at::Device(at::kCUDA, 0));
  made_up.unsafeGetTensorImpl()->set_sizes_and_strides(at::IntArrayRef{3}, at::IntArrayRef{2});
  return made_up;
}

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

TEST(GradientGroups, StridedGradientsGoToOurOperator) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    GradientGroups groups;
    const at::Tensor memory = at::full({6}, 8.0, dtype);
    const at::Tensor every_second = memory.slice(0, 0, 6, 2);
    const at::Tensor dense = at::full({2}, 8.0, dtype);
    const auto version = every_second._version();
    groups.add(dense);
    groups.add(every_second);
    const UnscaleCalls calls;
    const auto found_inf_per_device = groups.unscale_(at::full({}, 0.5F), at::zeros({}));
    EXPECT_EQ(calls.count(), 1);
    EXPECT_EQ(found_inf_per_device.size(), 1U);
    EXPECT_EQ(found_inf_per_device[0].found_inf.item<float>(), 0.0F);
    EXPECT_TRUE(at::equal(memory, at::tensor({4, 8, 4, 8, 4, 8}).to(dtype)));
    EXPECT_TRUE(at::all(dense == 4.0).item<bool>());
    EXPECT_EQ(every_second._version(), version);
  }
}

TEST(GradientGroups, OthersGoToTorchsOperatorAndFirst) {
  const at::Tensor dense = at::full({2}, 8.0F);
  const at::Tensor integers = at::ones({2}, at::kInt);
  const at::Tensor later = at::full({2}, 8.0);
  GradientGroups groups;
  for (const at::Tensor& gradient : {dense, integers, later}) {
    groups.add(gradient);
  }
  EXPECT_THROW(groups.unscale_(at::full({}, 0.5F), at::zeros({})), c10::Error);
  EXPECT_TRUE(at::all(dense == 8.0F).item<bool>());
  EXPECT_TRUE(at::all(later == 8.0F).item<bool>());
}

TEST(GradientGroups, GradientsThatShareMemoryAreMultipliedInTurn) {
  AmpScaler scaler = make_scaler(2.0);
  const at::Tensor memory = at::full({4}, 8.0F);
  const std::vector<at::Tensor> parameters{make_parameter(at::ones({3}), memory.slice(0, 0, 3)),
                                           make_parameter(at::ones({3}), memory.slice(0, 1, 4))};
  auto optimizer = make_sgd(parameters);
  const UnscaleCalls calls;
  scaler.unscale_(optimizer);
  EXPECT_EQ(calls.count(), 2);
  EXPECT_TRUE(at::equal(memory, at::tensor({4.0F, 2.0F, 2.0F, 4.0F})));
}

// torch's operator has no bfloat16 on CUDA: ours must have it, or nothing may be written.
TEST(GradientGroups, BFloat16OnCudaNeverGoesToTorch) {
  const at::Tensor dense = at::full({2}, 8.0F);
  const at::Tensor made_up = make_cuda_bfloat16();
  const c10::impl::IncludeDispatchKeyGuard mode(c10::DispatchKey::PythonTLSSnapshot);
  ASSERT_FALSE(GradientGroups::is_plain(dense));
  GradientGroups groups;
  groups.add(dense);
  groups.add(made_up);
  EXPECT_FALSE(groups.groups()[0].dtypes[0].ours);
  const bool ours = groups.groups()[1].dtypes[0].ours;
  EXPECT_EQ(ours, ops::has_unscale_kernel(at::kCUDA));
  if (!ours) {
    EXPECT_THROW(groups.unscale_(at::full({}, 0.5F), at::zeros({})), c10::NotImplementedError);
    const c10::impl::ExcludeDispatchKeyGuard no_mode(c10::DispatchKey::PythonTLSSnapshot);
    EXPECT_TRUE(at::all(dense == 8.0F).item<bool>());
  }
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
