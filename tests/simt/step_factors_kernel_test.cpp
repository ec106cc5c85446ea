// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The kernels of `step_factors` and `merge_stats` against the rules of core, which the CPU backend calls,
// with the same numbers: to the bit, for every dtype, for what is not given, and for unusable numbers.

#include "simt/pass_call.h"
// The harness comes first.
#include "kernels/cuda/step_factors_kernels.cuh"

namespace ampscaler::cuda::test {
namespace {

constexpr double kTiny = 0x1p-1074;
const std::vector<double> kNumbers = {1.0,  0.1,   65536.0,   0.0,   -0.0,       kInfinity,
                                      -3.0, 1e300, kInfinity, kNan,  -kInfinity, kTiny,
                                      3e38, 1e-40, 0x1p-137,  -kTiny};
const std::vector<float> kFlags = {0.0F, 1.0F, -0.0F, 1e-45F, -2.0F, HUGE_VALF, NAN};

/// `value`, rounded to the dtype, at an address.
class Scalar {
 public:
  Scalar() : memory_(core::kFloat64, 1), value_(1.0) {}  // not given
  Scalar(double value, core::DataType dtype) : memory_(dtype, 1), is_given_(true) {
    memory_.set(0, value);
    value_ = memory_.get(0);
  }

  double value() const { return value_; }  // 1 if it is not given
  DeviceScalar get() const {
    return is_given_
               ? DeviceScalar{reinterpret_cast<const void*>(memory_.address()), memory_.dtype()}
               : DeviceScalar{};
  }

 private:
  Gradient memory_;
  double value_;
  bool is_given_ = false;
};

template <std::size_t kCount>
void expect_same(const std::array<float, kCount>& found, const std::array<float, kCount>& expected,
                 const std::string& what) {
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(same(static_cast<double>(found[i]), static_cast<double>(expected[i])))
        << what << " [" << i << "]: " << found[i] << ", not " << expected[i];
  }
}

// ---- step_factors ----

enum StepArgument : std::uint8_t { kScale, kDivisorOfStep, kUsersScale, kCoefficient, kGiven };
using StepScalars = std::array<float, core::kStepScalars>;

struct StepCall {
  float found_inf = 0.0F;
  std::array<Scalar, kGiven> given;

  StepScalars run() const {
    StepScalars scalars;
    scalars.fill(-7.0F);
    const StepArguments arguments = {&found_inf,
                                     given[kScale].get(),
                                     given[kDivisorOfStep].get(),
                                     given[kUsersScale].get(),
                                     given[kCoefficient].get(),
                                     scalars.data()};
    simt::Launcher launcher;
    launcher.launch(dim3(1), dim3(1), &step_factors_kernel, arguments);
    return scalars;
  }

  StepScalars expected() const {
    StepScalars scalars;
    core::step_scalars(found_inf,
                       {given[kScale].value(), given[kDivisorOfStep].value(),
                        static_cast<float>(given[kUsersScale].value())},
                       given[kCoefficient].value(), scalars.data());
    return scalars;
  }

  void check(const std::string& what) const { expect_same(run(), expected(), what); }
};

TEST(StepFactorsKernel, TheNumbersOfAStep) {
  StepCall call;
  expect_same(call.run(), {0.0F, 1.0F}, "nothing is given");
  call.given = {Scalar(8.0, core::kFloat32), Scalar(3.0, core::kFloat64),
                Scalar(0.1, core::kFloat64), Scalar(0.7, core::kFloat64)};
  const double users = static_cast<float>(0.1);  // rounded as torch rounds it
  expect_same(call.run(), {0.0F, static_cast<float>(users * 24.0 / 0.7)}, "all are given");
  call.found_inf = NAN;
  expect_same(call.run(), {1.0F, static_cast<float>(users * 24.0)}, "a flag");
}

TEST(StepFactorsKernel, EveryNumberOfEveryDtypeInEveryPlace) {
  for (int place = 0; place < kGiven; ++place) {
    for (const core::DataType dtype : kAllDtypes) {
      for (const double number : kNumbers) {
        StepCall call;
        call.given[place] = Scalar(number, dtype);
        for (const float flag : kFlags) {
          call.found_inf = flag;
          call.check("place " + std::to_string(place) + " dtype " + std::to_string(dtype) +
                     " number " + std::to_string(number) + " flag " + std::to_string(flag));
        }
      }
    }
  }
}

TEST(StepFactorsKernel, PairsOfNumbers) {
  for (int first = 0; first < kGiven; ++first) {
    for (int second = 0; second < first; ++second) {
      for (std::size_t i = 0; i < kNumbers.size(); ++i) {
        for (std::size_t j = 0; j < kNumbers.size(); ++j) {
          StepCall call;
          call.given[first] = Scalar(kNumbers[i], kAllDtypes[i % 4]);
          call.given[second] = Scalar(kNumbers[j], core::kFloat64);
          call.check(std::to_string(kNumbers[i]) + " and " + std::to_string(kNumbers[j]));
        }
      }
    }
  }
}

// ---- merge_stats ----

using Factors = std::array<float, core::kFactorSlots>;

struct MergeCall {
  std::vector<double> rows;  // of core::kStatsSlots each
  double norm_type = 2.0;
  double limit = kInfinity;
  Scalar max_norm;
  double eps = 0.0;

  std::array<double, core::kStatsSlots> stats = {};
  Factors factors = {};

  std::int64_t parts() const { return static_cast<std::int64_t>(rows.size()) / core::kStatsSlots; }

  template <typename Stats>
  void run(const Stats& given) {
    stats.fill(-7.0);
    factors.fill(-7.0F);
    const MergeArguments arguments = {parts(), norm_type,    max_norm.get(), limit,
                                      eps,     stats.data(), factors.data()};
    simt::Launcher launcher;
    launcher.launch(dim3(1), dim3(1), &merge_stats_kernel<Stats>, given, arguments);
  }

  void check(const std::string& what) const {
    std::array<double, core::kStatsSlots> expected;
    Factors expected_factors;
    const double given = max_norm.get().address == nullptr ? limit : max_norm.value();
    core::merge_stats(core::StatsRows{rows.data()}, parts(), norm_type, {given, eps},
                      expected.data(), expected_factors.data());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(same(stats[i], expected[i]))
          << what << " " << core::kStatsNames[i] << ": " << stats[i] << ", not " << expected[i];
    }
    expect_same(factors, expected_factors, what);
  }

  void run_and_check(const std::string& what) {
    run(core::StatsRows{rows.data()});
    check(what + ", in rows");
    const std::vector<double> columns = transposed();
    StatsVectors table = {};
    for (std::int64_t i = 0; i < parts(); ++i) {
      table.vectors[i] = {columns.data() + i, parts()};
    }
    run(table);
    check(what + ", in columns");
  }

  std::vector<double> transposed() const {
    std::vector<double> columns(rows.size());
    const auto width = static_cast<std::size_t>(core::kStatsSlots);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      columns[i % width * (rows.size() / width) + i / width] = rows[i];
    }
    return columns;
  }
};

void add_row(std::vector<double>& rows, double norm, double max_abs) {
  const double infs = std::isinf(norm) ? 2.0 : 0.0;
  const double nans = std::isnan(norm) ? 1.0 : 0.0;
  rows.insert(rows.end(), {norm, max_abs, 3.0, 5.0, 100.0, infs, nans, 0.0, 0.5});
}

TEST(MergeStatsKernel, TheStatisticsOfTwoLists) {
  MergeCall call;
  add_row(call.rows, 3.0, 2.0);
  add_row(call.rows, 4.0, 1.0);
  call.limit = 2.0;
  call.run(core::StatsRows{call.rows.data()});
  const std::array<double, core::kStatsSlots> expected = {5, 2, 6, 10, 200, 0, 0, 0, 2.0 / 5};
  EXPECT_EQ(call.stats, expected);
  expect_same(call.factors, {0.0F, 5.0F, 0.4F, 1.0F, 1.0F}, "factors");
  call.max_norm = Scalar(1.0, core::kFloat16);
  call.run(core::StatsRows{call.rows.data()});
  EXPECT_EQ(call.stats[core::kClipCoefficient], 1.0 / 5) << "the tensor goes before the limit";
}

TEST(MergeStatsKernel, EveryNormTypeAndPairOfNorms) {
  for (const double norm_type : {2.0, kInfinity, 0.0, 1.0, 3.5}) {
    for (const double first : kNumbers) {
      for (const double second : kNumbers) {
        MergeCall call;
        call.norm_type = norm_type;
        call.limit = 0.5;
        add_row(call.rows, first, second);
        add_row(call.rows, second, first);
        call.run_and_check(std::to_string(first) + " and " + std::to_string(second));
      }
    }
  }
}

TEST(MergeStatsKernel, EveryLimitOfEveryDtype) {
  for (const core::DataType dtype : kAllDtypes) {
    for (const double number : kNumbers) {
      MergeCall call;
      call.limit = 3.0;
      call.eps = 1e-6;
      call.max_norm = Scalar(number, dtype);
      for (const double norm : {7.0, 1e-300}) {
        add_row(call.rows, norm, norm);
        call.run_and_check("limit " + std::to_string(number) + " dtype " + std::to_string(dtype));
      }
    }
  }
}

TEST(MergeStatsKernel, AsManyVectorsAsAKernelTakes) {
  MergeCall call;
  call.limit = 1.0;
  for (int i = 0; i < kMostStatsVectors; ++i) {
    add_row(call.rows, 1.0 + 0.37 * i, 0.1 * (i % 50));
  }
  call.run_and_check("a full table");
}

}  // namespace
}  // namespace ampscaler::cuda::test
