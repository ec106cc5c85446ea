// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The passes with a result for each tensor: norms, and where inf and NaN are.

#include "simt/pass_call.h"
// The harness comes first.
#include "kernels/cuda/find_nonfinite_op.cuh"
#include "kernels/cuda/grad_norms_op.cuh"

namespace ampscaler::cuda::test {
namespace {

// ---- grad_norms ----

std::vector<float> norms_of(const GradientList& list, float scale, double norm_type,
                            const Schedule& schedule) {
  const core::UnitPlan plan = plan_of(list, core::EmptyTensors::kKeep);
  std::vector<UnitSums> scratch(plan.unit_total());
  std::vector<float> norms(list.size(), -7.0F);
  simt::Launcher launcher = launcher_for(schedule);
  grad_norms_pass<kTestThreads>(launcher, plan, &scale, norm_type, scratch.data(), norms.data(),
                                schedule.multiprocessors);
  return norms;
}

/// For 0 a tensor's norm is the number of its elements that are not 0.
float reference_norm(const Gradient& gradient, float scale, double norm_type) {
  core::GradSums sums;
  std::memset(&sums, 0, sizeof(sums));
  add_gradient(sums, gradient, norm_type);
  if (norm_type == 0.0) {
    std::memset(sums.limbs, 0, sizeof(sums.limbs));
    core::add_exactly(sums.limbs, static_cast<double>(sums.elements - sums.zeros));
  }
  Call call;
  core::finish(sums, norm_type, {static_cast<double>(scale)}, core::ClipRule(), call.stats,
               call.factors);
  return call.factors[core::kRoundedNorm];
}

void expect_norms(const GradientList& list, float scale, double norm_type, const Schedule& schedule,
                  const std::string& what) {
  const std::vector<float> norms = norms_of(list, scale, norm_type, schedule);
  for (std::size_t t = 0; t < list.size(); ++t) {
    const float expected = reference_norm(list[t], scale, norm_type);
    EXPECT_TRUE(same(static_cast<double>(norms[t]), static_cast<double>(expected)))
        << what << " tensor " << t << ": " << norms[t] << ", not " << expected;
  }
}

TEST(GradNormsKernel, NormOfEachTensor) {
  for_each_alignment([](core::DataType dtype, int offset) {
    GradientList list = list_of(dtype, offset);
    list.emplace_back(dtype, 0);
    for (const Data data : kAllData) {
      fill(list, data, 41);
      const std::vector<Schedule> all = schedules();
      const Schedule schedule = all[static_cast<std::size_t>(data) % all.size()];
      expect_norms(list, 3.0F, 2.0, schedule, describe(dtype, offset, data, schedule.seed));
    }
  });
}

TEST(GradNormsKernel, OtherNorms) {
  GradientList list = mixed_list();
  for (const double norm_type : {kInfinity, 0.0, 1.0, 3.5}) {
    for (const Data data : {Data::kOrdinary, Data::kZeros, Data::kBoth}) {
      fill(list, data, 8);
      expect_norms(list, -4.0F, norm_type, {2, 2, 4}, "norm type " + std::to_string(norm_type));
    }
  }
}

// More units than a block has threads, which add up what the warps have found.
TEST(GradNormsKernel, ATensorOfManyUnits) {
  const std::int64_t units = kIsSlow ? 3 : kNormThreads + 2;
  GradientList list;
  list.emplace_back(core::kFloat64, units * core::unit_elements(core::kFloat64));
  fill(list, Data::kOrdinary, 11);
  expect_norms(list, 3.0F, 2.0, {2, 2, 4}, "2-norm");
  fill(list, Data::kZeros, 11);
  for (const std::int64_t place : {std::int64_t{0}, list[0].elements() - 1}) {
    list[0].set(place, 5.0);
    expect_norms(list, 3.0F, 0.0, {2, 2, 4}, "one element that is not 0");
    list[0].set(place, 0.0);
  }
}

TEST(GradNormsKernel, LongAndEmptyLists) {
  EXPECT_TRUE(norms_of({}, 1.0F, 2.0, {0, 1, 1}).empty());
  GradientList list;
  list.emplace_back(core::kFloat32, 0);
  expect_norms(list, 1.0F, 2.0, {0, 1, 1}, "empty");
  expect_norms(list, 1.0F, 3.0, {0, 1, 1}, "empty");
  for (int i = 0; i < (kIsSlow ? 130 : 2100); ++i) {
    list.emplace_back(kAllDtypes[i % 4], i % 3);
  }
  fill(list, Data::kOrdinary, 6);
  expect_norms(list, 2.0F, 2.0, {2, 1, 2}, "long list");
}

// ---- find_nonfinite ----

struct Row {
  std::int64_t first;
  std::int64_t kind;
  std::int64_t count;
};

std::vector<Row> find(const GradientList& list, const std::vector<bool>& is_complex,
                      const Schedule& schedule) {
  std::vector<Row> rows(list.size(), {-9, -9, -9});
  simt::Launcher launcher = launcher_for(schedule);
  find_nonfinite_pass<kTestThreads>(launcher, plan_of(list, core::EmptyTensors::kKeep), is_complex,
                                    reinterpret_cast<std::int64_t*>(rows.data()),
                                    schedule.multiprocessors);
  return rows;
}

int kind(double value) { return std::isnan(value) ? 2 : std::isinf(value) ? 1 : 0; }

Row reference_row(const Gradient& gradient, bool is_complex) {
  Row row{-1, 0, 0};
  const std::int64_t width = is_complex ? 2 : 1;
  for (std::int64_t i = 0; i < gradient.elements() / width; ++i) {
    const int worst =
        std::max(kind(gradient.get(i * width)), kind(gradient.get(i * width + width - 1)));
    if (worst > 0 && row.count++ == 0) {
      row.first = i;
      row.kind = worst;
    }
  }
  return row;
}

void expect_rows(const GradientList& list, const std::vector<bool>& is_complex,
                 const Schedule& schedule, const std::string& what) {
  const std::vector<Row> rows = find(list, is_complex, schedule);
  for (std::size_t t = 0; t < list.size(); ++t) {
    const Row expected = reference_row(list[t], is_complex[t]);
    EXPECT_EQ(rows[t].first, expected.first) << what << " tensor " << t;
    EXPECT_EQ(rows[t].kind, expected.kind) << what << " tensor " << t;
    EXPECT_EQ(rows[t].count, expected.count) << what << " tensor " << t;
  }
}

TEST(FindNonfiniteKernel, FirstKindAndCount) {
  for (const core::DataType dtype : kAllDtypes) {
    GradientList list = list_of(dtype, 0);
    for (const Data data : {Data::kOrdinary, Data::kInfs, Data::kNans, Data::kBoth, Data::kHuge}) {
      fill(list, data, 43);
      for (const Schedule& schedule : schedules()) {
        expect_rows(list, std::vector<bool>(list.size(), false), schedule,
                    describe(dtype, 0, data, schedule.seed));
      }
    }
  }
}

TEST(FindNonfiniteKernel, OneBadElementAnywhere) {
  GradientList list;
  list.emplace_back(core::kFloat32, 3 * 4096 + 5);
  for (const std::int64_t place : {0, 1, 31, 4095, 4096, 8200, 3 * 4096 + 4}) {
    fill(list, Data::kOrdinary, 1);
    list[0].set(place, kNan);
    expect_rows(list, {false}, {2, 2, 4}, "place " + std::to_string(place));
  }
}

TEST(FindNonfiniteKernel, AComplexElementCountsOnce) {
  for (const core::DataType dtype : kAllDtypes) {
    GradientList list;
    std::vector<bool> is_complex;
    for (const std::int64_t pairs :
         {std::int64_t{1}, std::int64_t{0}, std::int64_t{50}, core::unit_elements(dtype) + 3}) {
      list.emplace_back(dtype, 2 * pairs);
      is_complex.push_back(true);
      list.emplace_back(dtype, 2 * pairs);
      is_complex.push_back(false);
    }
    fill(list, Data::kBoth, 2);
    expect_rows(list, is_complex, {3, 2, 4}, "dtype " + std::to_string(dtype));
  }
}

TEST(FindNonfiniteKernel, TheWorseHalfOfAComplexElementNamesIt) {
  GradientList list;
  for (const auto& [real, imaginary] : {std::pair(kInfinity, kNan), std::pair(kNan, kInfinity),
                                        std::pair(1.0, kInfinity), std::pair(kInfinity, 1.0)}) {
    list.emplace_back(core::kFloat32, 6);
    list.back().set(2, real);
    list.back().set(3, imaginary);
  }
  expect_rows(list, std::vector<bool>(list.size(), true), {1, 1, 1}, "complex");
}

TEST(FindNonfiniteKernel, LongAndEmptyLists) {
  EXPECT_TRUE(find({}, {}, {0, 1, 1}).empty());
  GradientList list;
  std::vector<bool> is_complex;
  for (int i = 0; i < (kIsSlow ? 130 : 2100); ++i) {
    list.emplace_back(kAllDtypes[i % 4], i % 3);
    is_complex.push_back(i % 3 == 2 &&
                         i % 7 < 3);  // in the second table other places than in the first
  }
  fill(list, Data::kBoth, 6);
  expect_rows(list, is_complex, {2, 1, 2}, "long list");
}

}  // namespace
}  // namespace ampscaler::cuda::test
