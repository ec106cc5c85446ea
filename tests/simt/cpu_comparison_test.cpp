// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The CUDA kernels against the loops of the CPU backend, for every instruction set of this machine, and
// against aten's operator. They share no code but core/. Sums are taken in another order on each side, so
// norms may differ by what both may be off; all else is equal.

#include "simt/pass_call.h"
// The harness comes first.
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cuda/scale_grads_op.cuh"
#include "kernels/cuda/unscale_op.cuh"
#include "simt/aten_unscale.h"

namespace ampscaler::cuda::test {
namespace {

constexpr double kLimit = 0.75;
const Schedule kSchedule = {2, 3, 4};

void add(core::GradSums& sums, const cpu::UnitStats& unit, std::int64_t elements) {
  core::add_exactly(sums.limbs, unit.sum);
  core::add_exactly(sums.limbs, unit.sum_high, core::kHighShift);
  core::add_exactly(sums.limbs, unit.sum_low, core::kLowShift);
  sums.elements += elements;
  sums.zeros += unit.zeros;
  sums.underflows += unit.underflows;
  sums.infs += unit.infs;
  sums.nans += unit.nans;
  sums.overflows += unit.overflows;
  sums.max_abs_bits = std::max(sums.max_abs_bits, __builtin_bit_cast(std::int64_t, unit.max_abs));
}

/// Runs `loop(memory, unit, stats)` on every unit.
template <typename Loop>
core::GradSums on_cpu(const GradientList& list, Loop loop) {
  const core::UnitPlan plan = plan_of(list);
  core::GradSums sums = no_sums().sums;
  for (std::uint32_t id = 0; id < plan.unit_total(); ++id) {
    const auto entries = static_cast<std::int64_t>(plan.entries().size());
    const std::int64_t entry = core::find_entry(plan.entries().data(), entries, id);
    const core::Unit unit = core::unit_of(plan.entries().data(), entry, id);
    cpu::UnitStats stats = {};
    loop(reinterpret_cast<void*>(unit.address), unit, &stats);
    add(sums, stats, unit.elements);
  }
  return sums;
}

/// Clause C7: each side is within its error of the exact norm, and so within both of the other.
void expect_close(const Call& call, core::GradSums cpu, core::DataType dtype,
                  const std::string& what) {
  double stats[core::kStatsSlots];
  float factors[core::kFactorSlots];
  core::finish(cpu, 2.0, call.scaling(), core::ClipRule(), stats, factors);
  for (int i = core::kMaxAbs; i < core::kStatsSlots; ++i) {
    EXPECT_TRUE(same(call.stats[i], stats[i])) << what << " " << core::kStatsNames[i];
  }
  EXPECT_EQ(call.factors[core::kFoundInf], factors[core::kFoundInf]) << what;
  const double norm = stats[core::kNorm];
  if (std::isfinite(norm)) {
    const double cpu_error = core::element_bytes(dtype) == 2 ? 0x1p-20 : 0x1p-23;
    EXPECT_LE(std::fabs(call.stats[core::kNorm] - norm), (norm_error(dtype) + cpu_error) * norm)
        << what;
  } else {
    EXPECT_TRUE(same(call.stats[core::kNorm], norm)) << what;
  }
}

void expect_same_values(const GradientList& a, const GradientList& b, const std::string& what) {
  for (std::size_t t = 0; t < a.size(); ++t) {
    for (std::int64_t i = 0; i < a[t].elements(); ++i) {
      ASSERT_TRUE(same(a[t].get(i), b[t].get(i))) << what << " tensor " << t << " element " << i
                                                  << ": " << a[t].get(i) << ", not " << b[t].get(i);
    }
  }
}

/// Calls `test(cuda_list, cpu_list, what)` with two equal lists for each dtype and kind of data; one of them is
/// misaligned now and then.
template <typename Test>
void for_each_list(Test test) {
  for (const core::DataType dtype : kAllDtypes) {
    for (const Data data : kAllData) {
      const bool misaligned = static_cast<int>(data) % 2 == 1;
      const auto offset = static_cast<int>(misaligned ? core::element_bytes(dtype) : 0);
      GradientList a = list_of(dtype, offset);
      GradientList b = list_of(dtype, 0);
      fill(a, data, 19);
      fill(b, data, 19);
      test(a, b, describe(dtype, offset, data, 0));
    }
  }
}

template <typename Action>
Call on_cuda(const GradientList& list, float scale) {
  Call call;
  call.scale = scale;
  Workspace workspace = no_sums();
  simt::Launcher launcher = launcher_for(kSchedule);
  const bool clamps = std::is_same_v<Action, UnscaleClamp>;
  stats_pass<Action, kTestThreads>(launcher, plan_of(list),
                                   call.arguments(workspace, clamps ? kLimit : kInfinity),
                                   kSchedule.multiprocessors);
  return call;
}

TEST(CpuComparison, ReadOnlyPass) {
  for (const cpu::KernelTable* table : cpu::available_kernels()) {
    for_each_list([&](GradientList& a, GradientList& b, const std::string& what) {
      expect_close(on_cuda<ReadOnly>(a, 1.0F),
                   on_cpu(b,
                          [&](void* memory, const core::Unit& unit, cpu::UnitStats* stats) {
                            table->stats[unit.dtype](memory, unit.elements, stats);
                          }),
                   a[0].dtype(), what + " " + table->name);
    });
  }
}

TEST(CpuComparison, PassesInPlace) {
  const cpu::KernelTable& table = *cpu::available_kernels().back();
  for_each_list([&](GradientList& a, GradientList& b, const std::string& what) {
    for (const float scale : {0.3F, 4.0F, 0x1p-10F}) {
      const Call unscaled = on_cuda<Unscale>(a, scale);
      const float inverse = core::inverse_scale(unscaled.scaling());
      core::GradSums sums =
          on_cpu(b, [&](void* memory, const core::Unit& unit, cpu::UnitStats* stats) {
            table.unscale_with_stats[unit.dtype](memory, unit.elements, inverse, stats);
          });
      expect_close(unscaled, sums, a[0].dtype(), what + " unscale");
      expect_same_values(a, b, what + " unscale");
      const Call clamped = on_cuda<UnscaleClamp>(a, scale);
      sums = on_cpu(b, [&](void* memory, const core::Unit& unit, cpu::UnitStats* stats) {
        table.unscale_clamp[unit.dtype](memory, unit.elements, inverse, kLimit, stats);
      });
      expect_close(clamped, sums, a[0].dtype(), what + " clamp");
      expect_same_values(a, b, what + " clamp");
    }
  });
}

TEST(CpuComparison, SecondPass) {
  const cpu::KernelTable& table = *cpu::available_kernels().back();
  const float factor = 0.3F;
  const float found_inf = 0.0F;
  for_each_list([&](GradientList& a, GradientList& b, const std::string& what) {
    simt::Launcher launcher = launcher_for(kSchedule);
    scale_grads_pass<kTestThreads>(launcher, plan_of(a), &factor, &found_inf, 2);
    on_cpu(b, [&](void* memory, const core::Unit& unit, cpu::UnitStats* /*stats*/) {
      table.multiply[unit.dtype](memory, unit.elements, factor);
    });
    expect_same_values(a, b, what);
  });
}

// The flag too, but for doubles beyond float: aten's CUDA operator narrows them, its CPU operator does not.
TEST(AtenComparison, UnscaleStoresTheSameBitsAndFindsTheSame) {
  for_each_list([&](GradientList& a, GradientList& b, const std::string& what) {
    for (const float inv_scale : {1.0F, 0.5F, 0.3F, 4096.0F, 0.0F}) {
      bool beyond_float = false;
      float found_inf = 0.0F;
      float expected = 0.0F;
      for (const Gradient& gradient : b) {
        for (const double value : gradient.values()) {
          beyond_float = beyond_float || (std::isfinite(value) && std::fabs(value) > FLT_MAX);
        }
        expected =
            std::max(expected, aten_unscale(reinterpret_cast<void*>(gradient.address()),
                                            gradient.elements(), gradient.dtype(), inv_scale));
      }
      simt::Launcher launcher = launcher_for(kSchedule);
      unscale_pass<kTestThreads>(launcher, plan_of(a), &inv_scale, &found_inf, 2);
      EXPECT_EQ(found_inf, beyond_float ? 1.0F : expected) << what;
      expect_same_values(a, b, what);
    }
  });
}

}  // namespace
}  // namespace ampscaler::cuda::test
