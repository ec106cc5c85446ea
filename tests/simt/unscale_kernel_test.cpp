// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The CUDA kernels of `unscale_` and `update_scale_`, run on the CPU, against a plain loop over
// doubles and the scale rule.

#include "simt/simt.h"
// The kernels come after the harness.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/cuda/unscale_op.cuh"
#include "kernels/cuda/update_scale_kernels.cuh"

namespace ampscaler::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
T narrow(double value) {
  T result;
  store(result, static_cast<typename Compute<T>::Type>(value));
  return result;
}

template <typename T>
class UnscaleKernel : public testing::Test {
 protected:
  // Tensor k holds the values k + i / 8, small enough to be exact in every dtype.
  static std::vector<std::vector<T>> make_tensors(const std::vector<std::int64_t>& sizes) {
    std::vector<std::vector<T>> tensors;
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      tensors.emplace_back(sizes[k]);
      for (std::int64_t i = 0; i < sizes[k]; ++i) {
        tensors[k][i] = narrow<T>(expected_before(k, i));
      }
    }
    return tensors;
  }

  static double expected_before(std::size_t k, std::int64_t i) {
    return static_cast<double>(k % 7) + static_cast<double>(i % 8) / 8.0;
  }

  static void expect_halved(const std::vector<std::vector<T>>& tensors) {
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      for (std::size_t i = 0; i < tensors[k].size(); ++i) {
        const double expected = expected_before(k, static_cast<std::int64_t>(i)) / 2.0;
        ASSERT_EQ(static_cast<double>(load(tensors[k][i])), expected) << k << " " << i;
      }
    }
  }

  static std::vector<core::FlatTensor> views(std::vector<std::vector<T>>& tensors) {
    std::vector<core::FlatTensor> result;
    for (auto& tensor : tensors) {
      result.push_back({tensor.data(), static_cast<std::int64_t>(tensor.size())});
    }
    return result;
  }

  static float run(std::vector<std::vector<T>>& tensors, float inv_scale,
                   simt::Launcher& launcher) {
    float found_inf = 0.0F;
    unscale_tensors<T>(launcher, views(tensors), &inv_scale, &found_inf);
    return found_inf;
  }
};

using Dtypes = testing::Types<__half, __nv_bfloat16, float, double>;
TYPED_TEST_SUITE(UnscaleKernel, Dtypes);

const std::vector<std::int64_t> kSizes{0, 1, 7, 0, 255, 256, 257, 4095, 4096, 4097, 9000, 0};

TYPED_TEST(UnscaleKernel, MultipliesEveryElementOnceInAnyOrder) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    auto tensors = this->make_tensors(kSizes);
    simt::Launcher launcher({.seed = seed});
    EXPECT_EQ(this->run(tensors, 0.5F, launcher), 0.0F);
    EXPECT_EQ(launcher.launches, 1);
    this->expect_halved(tensors);
  }
}

TYPED_TEST(UnscaleKernel, FindsANonfiniteElementAtAnyPosition) {
  for (const std::size_t size : {1U, 4096U, 4097U, 9000U}) {
    for (const std::size_t position : {std::size_t{0}, size / 2, size - 1}) {
      for (const float bad : {kInfinity, -kInfinity, kNan}) {
        auto tensors = this->make_tensors({3, static_cast<std::int64_t>(size), 5});
        tensors[1][position] = narrow<TypeParam>(bad);
        simt::Launcher launcher;
        EXPECT_EQ(this->run(tensors, 0.5F, launcher), 1.0F);
        EXPECT_FALSE(core::is_finite(static_cast<double>(load(tensors[1][position]))));
      }
    }
  }
}

TYPED_TEST(UnscaleKernel, SplitsLongListsAndSkipsEmptyTensors) {
  for (const int count : {330, 331, 333}) {  // a third is empty: 220 tensors fill two tables
    std::vector<std::int64_t> sizes;
    for (int k = 0; k < count; ++k) {
      sizes.push_back((k + 2) % 3);
    }
    auto tensors = this->make_tensors(sizes);
    simt::Launcher launcher;
    EXPECT_EQ(this->run(tensors, 0.5F, launcher), 0.0F);
    EXPECT_EQ(launcher.launches, count == 330 ? 2 : 3);
    this->expect_halved(tensors);
  }
}

TYPED_TEST(UnscaleKernel, BlocksTakeChunksInTurn) {
  auto tensors = this->make_tensors({5000, 3, 9000, 1, 256});
  core::TensorTable table{};
  for (const core::FlatTensor& tensor : this->views(tensors)) {
    core::append(table, tensor);
  }
  const float inv_scale = 0.5F;
  float found_inf = 0.0F;
  simt::Launcher launcher({.seed = 2});
  launcher.launch(dim3(3), dim3(kUnscaleThreads), &unscale_kernel<TypeParam>, table,
                  core::chunk_count(table), &inv_scale, &found_inf);
  this->expect_halved(tensors);
}

TYPED_TEST(UnscaleKernel, NothingToDoLaunchesNothing) {
  auto tensors = this->make_tensors({0, 0});
  simt::Launcher launcher;
  this->run(tensors, 0.5F, launcher);
  EXPECT_EQ(launcher.launches, 0);
}

TEST(UnscaleKernelDouble, ValuesBeyondFloatCountAsOverflowAsInAten) {
  double value = 1e300;
  EXPECT_FALSE(unscale_element(value, 0.5));
  EXPECT_EQ(value, 5e299);
}

TEST(TensorTable, SizesBeyondThirtyTwoBitsFindTheirChunk) {
  core::TensorTable table{};
  const std::int64_t huge = (std::int64_t{1} << 40) + 5;
  core::append(table, {nullptr, 3});
  core::append(table, {nullptr, huge});
  core::append(table, {nullptr, 1});
  const std::int64_t chunks = core::chunk_count(table);
  EXPECT_EQ(chunks, 1 + (huge / core::kChunkElements + 1) + 1);
  EXPECT_EQ(core::find_chunk(table, 0).end, 3);
  const core::Chunk last_of_huge = core::find_chunk(table, chunks - 2);
  EXPECT_EQ(last_of_huge.tensor, 1);
  EXPECT_EQ(last_of_huge.end, huge);
  EXPECT_EQ(last_of_huge.end - last_of_huge.begin, 5);
  EXPECT_EQ(core::find_chunk(table, chunks - 1).tensor, 2);
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
  found_inf = kNan;
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
}  // namespace ampscaler::cuda
