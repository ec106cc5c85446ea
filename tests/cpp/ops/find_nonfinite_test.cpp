// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// `find_nonfinite` on the CPU, against a walk over the elements in row-major order.

#include <gtest/gtest.h>

#include "cpp/guarded_memory.h"
#include "cpp/ops/gradients.h"

namespace ampscaler {
namespace {

using Row = std::vector<std::int64_t>;

Row expected_row(const at::Tensor& grad) {
  Row row{-1, 0, 0};
  const std::vector<double> values = values_of(grad);
  const std::size_t width = grad.is_complex() ? 2 : 1;
  for (std::size_t i = 0; i < values.size(); i += width) {
    const double last = values[i + width - 1];
    if (!std::isfinite(values[i]) || !std::isfinite(last)) {
      const bool nan = std::isnan(values[i]) || std::isnan(last);
      row = row[2] == 0 ? Row{static_cast<std::int64_t>(i / width), nan ? 2 : 1, 0} : row;
      ++row[2];
    }
  }
  return row;
}

void expect_rows(const Gradients& grads) {
  const at::Tensor result = ops::find_nonfinite(grads);
  ASSERT_EQ(result.sizes(),
            (std::vector<std::int64_t>{static_cast<std::int64_t>(grads.size()), 3}));
  ASSERT_EQ(result.scalar_type(), at::kLong);
  const auto* data = result.const_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < grads.size(); ++i) {
    EXPECT_EQ(Row(data + 3 * i, data + 3 * i + 3), expected_row(grads[i])) << "gradient " << i;
  }
}

class FindNonfiniteDtype : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Cpu, FindNonfiniteDtype,
                         testing::Values(at::kHalf, at::kBFloat16, at::kFloat, at::kDouble),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

TEST_P(FindNonfiniteDtype, TheFirstOfEachGradientAndHowMany) {
  at::manual_seed(61);
  Gradients grads;
  for (const std::int64_t size : {1, 9, 100, 4096, 4097, 50000}) {
    for (const std::int64_t position : {std::int64_t{0}, size / 2, size - 1}) {
      const at::Tensor grad = at::randn({size}).to(GetParam());
      grads.push_back(grad.clone());
      grad[position] = position % 2 == 0 ? kNan : -kInfinity;
      grad[size - 1] = kInfinity;
      grads.push_back(grad);
    }
  }
  grads.push_back(at::full({10000}, kNan, GetParam()));
  for (const int threads : {1, 2, 3}) {
    const ThreadsGuard guard(threads);
    expect_rows(grads);
  }
}

TEST(FindNonfinite, IndicesAreRowMajorForEveryLayout) {
  const at::Tensor base = at::zeros({6, 10, 8, 4});
  base[5][0][0][0] = kInfinity;  // late in memory, early in a transposed view
  base[0][9][3][1] = kNan;
  base[2][3][7][3] = -kInfinity;
  expect_rows({base.transpose(0, 1), at::ones({2}), base.permute({2, 0, 3, 1}),
               base.clone().contiguous(at::MemoryFormat::ChannelsLast), base.slice(1, 0, 10, 3),
               base.select(2, 3), base.select(0, 0).unsqueeze(0).expand({3, 10, 8, 4}),
               base.permute({3, 2, 1, 0})});
}

TEST(FindNonfinite, AComplexElementCountsOnce) {
  const at::Tensor grad = at::zeros({9000}, at::kComplexFloat);
  at::Tensor parts = at::view_as_real(grad);
  parts[8500][1] = kInfinity;
  parts[8600][0] = kInfinity;
  parts[8600][1] = kNan;
  parts[8999][0] = kNan;
  expect_rows({grad, grad.slice(0, 8600), grad.slice(0, 0, 9000, 100), grad.reshape({90, 100}).t(),
               at::ones({4}, at::kComplexHalf)});
}

TEST(FindNonfinite, TensorsWithoutElementsHaveRows) {
  const at::Tensor none = at::empty({0});
  const at::Tensor bad = at::tensor({0.0F, static_cast<float>(kNan)});
  expect_rows({none, bad, none, none, bad, none});
  expect_rows({none});
}

TEST(FindNonfinite, TheSameGradientMayBeListedTwice) {
  const at::Tensor bad = at::tensor({0.0F, static_cast<float>(kNan)});
  expect_rows({bad, bad, bad.slice(0, 1)});
}

TEST(FindNonfinite, ReadsOnly) {
  const auto memory = std::make_unique<GuardedMemory>(1 << 16);
  const at::Tensor grad = memory->tensor({1 << 14}, at::kFloat).fill_(2.0);
  grad[7] = kNan;
  memory->watch();
  const at::Tensor rows = ops::find_nonfinite({grad});
  memory->unwatch();
  EXPECT_EQ(rows[0][0].item<std::int64_t>(), 7);
  EXPECT_EQ(memory->writes(), 0);
}

}  // namespace
}  // namespace ampscaler
