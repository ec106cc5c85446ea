// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Every pass in a thousand random schedules: who runs when, the grid, how many blocks run together, the
// order of the list and where it is split differ each time, and no bit of any result does.

#include "simt/pass_call.h"
// The harness comes first.
#include <algorithm>
#include <numeric>

#include "kernels/cuda/find_nonfinite_op.cuh"
#include "kernels/cuda/grad_norms_op.cuh"
#include "kernels/cuda/scale_grads_op.cuh"
#include "kernels/cuda/unscale_op.cuh"

namespace ampscaler::cuda::test {
namespace {

constexpr std::uint32_t kSchedules = kIsSlow ? 16 : 1000;

/// What a run has found, as bits: numbers of the whole list, then of each tensor in the list's own order.
struct Found {
  std::vector<std::uint64_t> numbers;
  std::vector<std::string> stored;

  void add(double number) { numbers.push_back(__builtin_bit_cast(std::uint64_t, number)); }
  bool operator==(const Found&) const = default;
};

void* memory_of(const Gradient& gradient) { return reinterpret_cast<void*>(gradient.address()); }

std::vector<std::string> bytes_of(const GradientList& list) {
  std::vector<std::string> bytes;
  for (const Gradient& gradient : list) {
    bytes.emplace_back(static_cast<const char*>(memory_of(gradient)), gradient.bytes());
  }
  return bytes;
}

/// All passes, each with a schedule of its own.
class Passes {
 public:
  Passes(const GradientList& list, std::uint32_t number)
      : list_(list),
        before_(bytes_of(list)),
        random_(number),
        schedule_{20 * number, static_cast<int>(1 + number % 4), static_cast<int>(1 + number % 9)},
        order_(list.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::shuffle(order_, random_);
  }

  Found all() {
    statistics<ReadOnly>(2.0);
    statistics<ReadOnly>(kInfinity);
    statistics<ReadOnly>(3.5);
    statistics<Unscale>(2.0);
    statistics<Unscale>(0.0);
    statistics<UnscaleClamp>(2.0);
    unscale();
    scale_grads();
    norms();
    nonfinite();
    EXPECT_EQ(std::memcmp(&workspace_, &kNoSums, sizeof(workspace_)), 0) << "workspace";
    return found_;
  }

 private:
  core::UnitPlan plan(std::size_t begin, std::size_t end,
                      core::EmptyTensors empty = core::EmptyTensors::kLeaveOut) const {
    core::UnitPlan result(empty);
    for (std::size_t i = begin; i < end; ++i) {
      const Gradient& gradient = list_[order_[i]];
      result.add(gradient.address(), gradient.elements(), gradient.dtype());
    }
    return result;
  }
  core::UnitPlan whole() const { return plan(0, list_.size()); }

  simt::Launcher launcher() {
    ++schedule_.seed;
    return launcher_for(schedule_);
  }

  // What was stored becomes part of the result, and the list is as before.
  void take_stored() {
    const std::vector<std::string> now = bytes_of(list_);
    found_.stored.insert(found_.stored.end(), now.begin(), now.end());
    for (std::size_t t = 0; t < list_.size(); ++t) {
      std::memcpy(memory_of(list_[t]), before_[t].data(), before_[t].size());
    }
  }

  template <typename Action>
  void statistics(double norm_type) {
    Call call;
    core::GradSums earlier = kNoSums.sums;
    call.scale = 0.3F;
    call.max_norm = 0.5;
    call.norm_type = norm_type;
    call.accumulate = &earlier;
    const std::size_t cut = random_() % (list_.size() + 1);
    for (const auto& part : {plan(0, cut), plan(cut, list_.size())}) {
      simt::Launcher by = launcher();
      stats_pass<Action, kTestThreads>(by, part, call.arguments(workspace_, 0.75),
                                       schedule_.multiprocessors);
    }
    std::ranges::for_each(call.stats, [&](double number) { found_.add(number); });
    std::ranges::for_each(call.factors, [&](float number) { found_.add(number); });
    take_stored();
  }

  void unscale() {
    const float inv_scale = 0.3F;
    float found_inf = 0.0F;
    simt::Launcher by = launcher();
    unscale_pass<kTestThreads>(by, whole(), &inv_scale, &found_inf, schedule_.multiprocessors);
    found_.add(found_inf);
    take_stored();
  }

  void scale_grads() {
    const float factor = 0.3F;
    const float found_inf = 0.0F;
    simt::Launcher by = launcher();
    scale_grads_pass<kTestThreads>(by, whole(), &factor, &found_inf, schedule_.multiprocessors);
    take_stored();
  }

  void norms() {
    const core::UnitPlan plan_of_all = plan(0, list_.size(), core::EmptyTensors::kKeep);
    const float scale = 3.0F;
    std::vector<UnitSums> scratch(plan_of_all.unit_total());
    std::vector<float> result(list_.size());
    simt::Launcher by = launcher();
    grad_norms_pass<kTestThreads>(by, plan_of_all, &scale, 2.0, scratch.data(), result.data(),
                                  schedule_.multiprocessors);
    add_by_tensor(result, 1);
  }

  void nonfinite() {
    std::vector<std::int64_t> rows(3 * list_.size());
    simt::Launcher by = launcher();
    find_nonfinite_pass<kTestThreads>(by, plan(0, list_.size(), core::EmptyTensors::kKeep),
                                      std::vector<bool>(list_.size()), rows.data(),
                                      schedule_.multiprocessors);
    add_by_tensor(rows, 3);
  }

  template <typename Number>
  void add_by_tensor(const std::vector<Number>& numbers, std::size_t width) {
    for (std::size_t t = 0; t < list_.size(); ++t) {
      const auto place = static_cast<std::size_t>(std::ranges::find(order_, t) - order_.begin());
      for (std::size_t i = 0; i < width; ++i) {
        found_.add(static_cast<double>(numbers[width * place + i]));
      }
    }
  }

  static inline const Workspace kNoSums = no_sums();

  const GradientList& list_;
  std::vector<std::string> before_;
  std::mt19937 random_;
  Schedule schedule_;
  std::vector<std::size_t> order_;
  Workspace workspace_ = no_sums();
  Found found_;
};

/// A few units of every dtype, most of them short, one tensor of several, one empty.
GradientList short_list() {
  GradientList list;
  for (int i = 0; i < 8; ++i) {
    const core::DataType dtype = kAllDtypes[i % 4];
    list.emplace_back(dtype,
                      i == 2   ? 4096 + 300
                      : i == 5 ? 0
                               : 1 + 41 * i,
                      static_cast<int>(i % 3 == 1 ? core::element_bytes(dtype) : 0));
  }
  return list;
}

TEST(Schedules, AThousandOfThemFindAndStoreTheSameBits) {
  for (const Data data : {Data::kWide, Data::kBoth}) {
    GradientList list = short_list();
    fill(list, data, 13);
    const Found expected = Passes(list, 0).all();
    for (std::uint32_t number = 1; number <= kSchedules / 2; ++number) {
      ASSERT_TRUE(Passes(list, number).all() == expected)
          << "data " << static_cast<int>(data) << " schedule " << number;
    }
  }
}

}  // namespace
}  // namespace ampscaler::cuda::test
