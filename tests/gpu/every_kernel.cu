// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Launches every kernel of the library, with tables of both sizes and several tables, on gradients of all
// dtypes, aligned and not, without torch: what compute-sanitizer looks at. The gradients are ones, so what
// must come out is known.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/step_scalars.h"
#include "core/unit_table.h"
#include "kernels/cuda/launch.h"

namespace {

using namespace ampscaler;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
  }
}

void expect(double found, double expected, const char* what) {
  if (!(std::fabs(found - expected) <= 1e-6 * std::fabs(expected))) {
    std::fprintf(stderr, "%s is %.9g, not %.9g\n", what, found, expected);
    std::exit(1);
  }
}

template <typename T>
T* on_device(const std::vector<T>& values) {
  T* memory = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&memory), values.size() * sizeof(T)), "memory");
  check(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "copy");
  return memory;
}

template <typename T>
std::vector<T> on_host(const T* memory, std::size_t count) {
  std::vector<T> values(count);
  check(cudaMemcpy(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost), "copy");
  return values;
}

// `elements` ones; the first is one element beyond an aligned address if `is_shifted`.
template <typename T>
void add_ones(core::UnitPlan& plan, core::DataType dtype, std::int64_t elements, bool is_shifted) {
  const std::size_t shift = is_shifted ? 1 : 0;
  T* memory = on_device(std::vector<T>(static_cast<std::size_t>(elements) + shift, T(1.0F)));
  plan.add(reinterpret_cast<std::uint64_t>(memory + shift), elements, dtype);
}

// Passes halve the values or double them, so that they are ones again in the end.
struct Scalars {
  float* half = on_device<float>({0.5F});
  float* two = on_device<float>({2.0F});
  float* flag = on_device<float>({0.0F});
  double* one_third = on_device<double>({1.0 / 3.0});
};

/// `short_tensors` besides the first 24, which are of all dtypes.
core::UnitPlan make_plan(int short_tensors) {
  core::UnitPlan plan;
  for (const bool is_shifted : {false, true}) {
    for (const std::int64_t elements : {1, 77, 20'000}) {
      add_ones<__half>(plan, core::kFloat16, elements, is_shifted);
      add_ones<__nv_bfloat16>(plan, core::kBFloat16, elements, is_shifted);
      add_ones<float>(plan, core::kFloat32, elements, is_shifted);
      add_ones<double>(plan, core::kFloat64, elements, is_shifted);
    }
  }
  for (int i = 0; i < short_tensors; ++i) {
    add_ones<float>(plan, core::kFloat32, 1 + i % 5, i % 2 == 1);
  }
  return plan;
}

cuda::PassArguments arguments_on_device(const Scalars& scalars) {
  cuda::PassArguments arguments;
  arguments.scale = scalars.half;
  arguments.limit = HUGE_VAL;
  arguments.workspace = on_device(std::vector<cuda::Workspace>(1));
  check(cudaMemset(arguments.workspace, 0, sizeof(cuda::Workspace)), "memory");
  arguments.stats = on_device(std::vector<double>(core::kStatsSlots));
  arguments.factors = on_device(std::vector<float>(core::kFactorSlots));
  return arguments;
}

/// What a pass has written to its slot `slot`.
double stat(const cuda::PassArguments& arguments, core::StatsSlot slot) {
  return on_host(arguments.stats, core::kStatsSlots)[slot];
}

/// The norm of the plan's elements, all of them `value`.
double norm_of(const core::UnitPlan& plan, double value, double norm_type) {
  if (norm_type == 0.0) {
    return static_cast<double>(plan.entries().size());  // tensors that are not all 0
  }
  return value * std::pow(static_cast<double>(plan.elements()), 1.0 / norm_type);
}

constexpr double kNormTypes[] = {0.0, 1.0, 2.0, 3.0, HUGE_VAL};

void run_reading_passes(const core::UnitPlan& plan, const Scalars& scalars) {
  cuda::PassArguments arguments = arguments_on_device(scalars);
  for (const double norm_type : kNormTypes) {
    arguments.norm_type = norm_type;
    check(cuda::launch_grad_stats(plan, arguments, 8, nullptr), "grad_stats");
    expect(stat(arguments, core::kNorm), norm_of(plan, 2.0, norm_type), "norm");
    expect(stat(arguments, core::kElements), static_cast<double>(plan.elements()), "elements");
  }
  arguments.norm_type = 2.0;
  // The scale is a half: divided by 2 and by 1/3, the true gradients are threes.
  arguments.scalars[cuda::kDivisor] = scalars.two;
  arguments.dtypes[cuda::kDivisor] = core::kFloat32;
  arguments.scalars[cuda::kUserScale] = scalars.one_third;
  arguments.dtypes[cuda::kUserScale] = core::kFloat64;
  arguments.scalars[cuda::kMaxNorm] = scalars.two;
  arguments.dtypes[cuda::kMaxNorm] = core::kFloat32;
  check(cuda::launch_grad_stats(plan, arguments, 8, nullptr), "grad_stats, divisor");
  const double norm = norm_of(plan, 3.0, 2.0);
  expect(stat(arguments, core::kNorm), norm, "norm with a divisor");
  expect(stat(arguments, core::kClipCoefficient), 2.0 / norm, "clip coefficient");
}

void run_accumulating_passes(const core::UnitPlan& plan, const Scalars& scalars) {
  cuda::PassArguments arguments = arguments_on_device(scalars);
  for (const double norm_type : kNormTypes) {
    arguments.norm_type = norm_type;
    arguments.accumulate = on_device(std::vector<core::GradSums>(1));
    check(cudaMemset(arguments.accumulate, 0, sizeof(core::GradSums)), "memory");
    check(cuda::launch_grad_stats(plan, arguments, 8, nullptr), "grad_stats, accumulate");
    check(cuda::launch_grad_stats(plan, arguments, 8, nullptr), "grad_stats, accumulate");
    const double once = norm_of(plan, 2.0, norm_type);
    const double twice = once * (norm_type == 0.0 ? 2.0 : std::pow(2.0, 1.0 / norm_type));
    expect(stat(arguments, core::kNorm), twice, "norm of two calls");
  }
}

void run_storing_passes(const core::UnitPlan& plan, const Scalars& scalars) {
  cuda::PassArguments arguments = arguments_on_device(scalars);
  for (const double norm_type : kNormTypes) {
    arguments.norm_type = norm_type;
    check(cuda::launch_unscale_with_stats(plan, arguments, 8, nullptr), "unscale_with_stats");
    expect(stat(arguments, core::kNorm), norm_of(plan, 2.0, norm_type), "norm when unscaling");
    // twos
    check(cuda::launch_unscale(plan, scalars.half, scalars.flag, 8, nullptr), "unscale");
  }
  check(cuda::launch_scale_grads(plan, scalars.two, scalars.flag, 8, nullptr), "scale_grads");
  // twos, which are divided by 2 and clamped to a half
  arguments.norm_type = 2.0;
  arguments.limit = 0.5;
  arguments.scale = scalars.two;
  check(cuda::launch_unscale_clamp(plan, arguments, 8, nullptr), "unscale_clamp");
  expect(stat(arguments, core::kNorm), norm_of(plan, 1.0, 2.0), "norm of what was clamped");
  // halves
  check(cuda::launch_scale_grads(plan, scalars.two, scalars.flag, 8, nullptr), "scale_grads");
  arguments.norm_type = 1.0;
  arguments.limit = HUGE_VAL;
  check(cuda::launch_grad_stats(plan, arguments, 8, nullptr), "grad_stats at the end");
  expect(stat(arguments, core::kNorm), norm_of(plan, 0.5, 1.0), "norm of ones");
  expect(stat(arguments, core::kMaxAbs), 0.5, "largest of ones");
}

std::int64_t elements_of(const core::UnitPlan& plan, std::size_t index) {
  const core::PlanEntry entry = plan.entries()[index];
  const std::uint32_t first =
      core::first_unit(plan.entries().data(), static_cast<std::int64_t>(index));
  const std::int64_t whole_units = entry.unit_end - first - 1;
  return whole_units * core::unit_elements(core::entry_dtype(entry)) + core::entry_tail(entry);
}

void run_norms_by_tensor(const core::UnitPlan& plan, const Scalars& scalars) {
  const std::size_t tensors = plan.entries().size();
  float* norms = on_device(std::vector<float>(tensors));
  void* scratch = nullptr;
  check(cudaMalloc(&scratch, static_cast<std::size_t>(cuda::grad_norms_scratch_bytes(plan))),
        "memory");
  for (const double norm_type : kNormTypes) {
    check(cuda::launch_grad_norms(plan, scalars.two, norm_type, scratch, norms, 8, nullptr),
          "grad_norms");
    const std::vector<float> found = on_host(norms, tensors);
    const double root = norm_type == 0.0 ? 1.0 : 1.0 / norm_type;
    const double scale = norm_type == 0.0 ? 1.0 : 2.0;
    expect(found[11], std::pow(20'000.0, root) / scale, "norm of a tensor");  // of 20,000 doubles
    const auto last = static_cast<double>(elements_of(plan, tensors - 1));
    expect(found.back(), std::pow(last, root) / scale, "norm of the last tensor");
  }
}

/// An empty tensor, one with an inf at its end, and a complex one with a NaN and an inf; then what `plan` has.
void run_find_nonfinite(const core::UnitPlan& ones) {
  core::UnitPlan plan(core::EmptyTensors::kKeep);
  std::vector<float> real(9000, 1.0F);
  real.back() = HUGE_VALF;
  std::vector<double> pairs(6000, 1.0);
  pairs[(2 * 1500) + 1] = NAN;
  pairs[2 * 2700] = HUGE_VAL;
  plan.add(0, 0, core::kFloat32);
  plan.add(reinterpret_cast<std::uint64_t>(on_device(real)), 9000, core::kFloat32);
  plan.add(reinterpret_cast<std::uint64_t>(on_device(pairs)), 6000, core::kFloat64);
  for (std::size_t i = 0; i < ones.entries().size(); ++i) {
    const core::PlanEntry entry = ones.entries()[i];
    plan.add(entry.address, elements_of(ones, i), core::entry_dtype(entry));
  }
  const std::size_t words = 3 * plan.entries().size();
  std::vector<bool> is_complex(plan.entries().size(), false);
  is_complex[2] = true;
  std::int64_t* rows = on_device(std::vector<std::int64_t>(words));
  check(cuda::launch_find_nonfinite(plan, is_complex, rows, 8, nullptr), "find_nonfinite");
  std::vector<std::int64_t> expected = {-1, 0, 0, 8999, 1, 1, 1500, 2, 2};
  while (expected.size() < words) {
    expected.insert(expected.end(), {-1, 0, 0});
  }
  expect(on_host(rows, words) == expected ? 1.0 : 0.0, 1.0, "equality of rows");
}

void run_update_scale(const Scalars& scalars) {
  expect(on_host(scalars.flag, 1)[0], 0.0, "found_inf");
  std::int32_t* tracker = on_device<std::int32_t>({0});
  check(cuda::launch_update_scale(scalars.half, tracker, scalars.flag, {2.0, 0.5, 1},
                                  core::ScaleLimits(), nullptr),
        "update_scale");
  expect(on_host(scalars.half, 1)[0], 1.0, "scale");
}

void run_step_factors(const Scalars& scalars) {
  cuda::StepArguments step;
  step.found_inf = scalars.flag;
  step.scale = {scalars.two, core::kFloat32};
  step.scalars = on_device(std::vector<float>(core::kStepScalars));
  check(cuda::launch_step_factors(step, nullptr), "step_factors");
  expect(on_host(step.scalars, core::kStepScalars)[core::kStepGradScale], 2.0, "grad_scale");

  std::vector<double> row(core::kStatsSlots);
  row[core::kNorm] = 3.0;
  std::vector<double> both = row;
  both.insert(both.end(), row.begin(), row.end());
  both[core::kNorm] = 4.0;
  const core::StatsRows rows = {on_device(both)};
  cuda::StatsVectors vectors = {};
  vectors.vectors[0] = {rows.rows, 1};
  vectors.vectors[1] = {rows.rows + core::kStatsSlots, 1};
  cuda::MergeArguments merge;
  merge.parts = 2;
  merge.limit = HUGE_VAL;
  merge.stats = on_device(row);
  merge.factors = on_device(std::vector<float>(core::kFactorSlots));
  check(cuda::launch_merge_stats(rows, merge, nullptr), "merge_stats of rows");
  expect(on_host(merge.stats, core::kStatsSlots)[core::kNorm], 5.0, "merged norm");
  check(cuda::launch_merge_stats(vectors, merge, nullptr), "merge_stats");
  expect(on_host(merge.stats, core::kStatsSlots)[core::kNorm], 5.0, "merged norm");
}

}  // namespace

int main() {
  const Scalars scalars;
  for (const int short_tensors : {0, 140, core::kLargeTable + 60}) {
    const core::UnitPlan plan = make_plan(short_tensors);
    run_reading_passes(plan, scalars);
    run_accumulating_passes(plan, scalars);
    run_storing_passes(plan, scalars);
    run_norms_by_tensor(plan, scalars);
    run_find_nonfinite(plan);
  }
  run_step_factors(scalars);
  run_update_scale(scalars);
  check(cudaDeviceSynchronize(), "end");
  std::printf("every kernel was launched\n");
  return 0;
}
