// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Scalars on their way to another device: exact values from the host's memory, and no copy of that memory.

#include "ops/device_copy.h"

#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/types.h>

namespace ampscaler::ops {
namespace {

std::set<std::string>& seen() {
  static thread_local std::set<std::string> names;
  return names;
}

// The operators that torch runs in on_device().
std::set<std::string> operators_of_copy(const at::Tensor& tensor, c10::Device device) {
  seen().clear();
  const auto note = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    seen().insert(function.name());
    return nullptr;
  };
  const at::CallbackHandle handle = at::addThreadLocalCallback(at::RecordFunctionCallback(note));
  const at::Tensor copy = on_device(tensor, device);
  at::removeCallback(handle);
  EXPECT_EQ(copy.device(), device);
  EXPECT_EQ(copy.scalar_type(), tensor.scalar_type());
  EXPECT_EQ(copy.sizes(), tensor.sizes());
  return seen();
}

TEST(DeviceCopy, AScalarFromTheHostIsNotCopied) {
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt}) {
    for (const at::Tensor& scalar : {at::full({}, 3, dtype), at::full({1}, 3, dtype)}) {
      const std::set<std::string> operators = operators_of_copy(scalar, at::kMeta);
      EXPECT_TRUE(operators.contains("aten::full"));
      EXPECT_FALSE(operators.contains("aten::to"));
      EXPECT_FALSE(operators.contains("aten::_to_copy"));
    }
  }
}

TEST(DeviceCopy, AllElseIsCopied) {
  const at::Tensor with_derivative = at::ones({}).requires_grad_();
  EXPECT_TRUE(on_device(with_derivative, at::kMeta).requires_grad());
  for (const at::Tensor& tensor :
       {at::ones({2}), at::ones({0}), at::ones({}, at::kComplexFloat), at::ones({}, at::kBool)}) {
    EXPECT_TRUE(operators_of_copy(tensor, at::kMeta).contains("aten::to"));
  }
}

TEST(DeviceCopy, OnTheSameDeviceNothingIsDoneUnlessACopyIsWanted) {
  const at::Tensor scalar = at::full({}, 3.0F);
  EXPECT_TRUE(on_device(scalar, at::kCPU).is_same(scalar));
  const at::Tensor copy = copy_on_device(scalar, at::kCPU);
  EXPECT_FALSE(copy.is_alias_of(scalar));
  EXPECT_TRUE(at::equal(copy, scalar));
}

template <typename T>
void expect_exact(T value, at::ScalarType dtype) {
  const at::Tensor scalar = at::empty({1}, dtype);
  *scalar.mutable_data_ptr<T>() = value;
  const at::Tensor filled = at::full({1}, value_on_host(scalar).value_or(0), dtype);
  EXPECT_EQ(*filled.const_data_ptr<T>(), value) << dtype;
}

TEST(DeviceCopy, ValuesAreExact) {
  expect_exact<std::int64_t>(9007199254740993, at::kLong);
  expect_exact<std::int64_t>(std::numeric_limits<std::int64_t>::min(), at::kLong);
  expect_exact<std::int32_t>(std::numeric_limits<std::int32_t>::max(), at::kInt);
  for (const double value : {0.1, 5e-324, 1.7e308, std::numeric_limits<double>::infinity()}) {
    expect_exact<double>(value, at::kDouble);
  }
  for (const float value : {0.1F, 1e-45F, 3e38F, -std::numeric_limits<float>::infinity()}) {
    expect_exact<float>(value, at::kFloat);
    expect_exact<at::Half>(static_cast<at::Half>(value), at::kHalf);
    expect_exact<at::BFloat16>(static_cast<at::BFloat16>(value), at::kBFloat16);
  }
}

}  // namespace
}  // namespace ampscaler::ops
