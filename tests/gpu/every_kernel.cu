// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Launches every kernel of the library on a short list of all dtypes, aligned and not, without torch: what
// compute-sanitizer looks at. The gradients are ones, so what must come out is known.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/step_scalars.h"
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
};

core::UnitPlan every_dtype() {
  core::UnitPlan plan;
  for (const bool is_shifted : {false, true}) {
    for (const std::int64_t elements : {1, 77, 20'000}) {
      add_ones<__half>(plan, core::kFloat16, elements, is_shifted);
      add_ones<__nv_bfloat16>(plan, core::kBFloat16, elements, is_shifted);
      add_ones<float>(plan, core::kFloat32, elements, is_shifted);
      add_ones<double>(plan, core::kFloat64, elements, is_shifted);
    }
  }
  return plan;
}

cuda::PassArguments arguments_on_device() {
  cuda::PassArguments arguments;
  arguments.limit = HUGE_VAL;
  arguments.workspace = on_device(std::vector<cuda::Workspace>(1));
  check(cudaMemset(arguments.workspace, 0, sizeof(cuda::Workspace)), "memory");
  arguments.stats = on_device(std::vector<double>(core::kStatsSlots));
  arguments.factors = on_device(std::vector<float>(core::kFactorSlots));
  return arguments;
}

void run_passes(const Scalars& scalars) {
  const core::UnitPlan plan = every_dtype();
  const auto elements = static_cast<double>(plan.elements());
  cuda::PassArguments arguments = arguments_on_device();
  const auto norm = [&] { return on_host(arguments.stats, core::kStatsSlots)[core::kNorm]; };

  arguments.scale = scalars.half;
  check(cuda::launch_grad_stats(plan, arguments, 8, nullptr), "grad_stats");
  expect(norm(), 2.0 * std::sqrt(elements), "norm");
  arguments.norm_type = 3.0;
  check(cuda::launch_grad_stats(plan, arguments, 8, nullptr), "grad_stats, 3");
  expect(norm(), 2.0 * std::cbrt(elements), "3-norm");
  arguments.norm_type = 2.0;
  check(cuda::launch_unscale_with_stats(plan, arguments, 8, nullptr), "unscale_with_stats");
  // twos
  check(cuda::launch_unscale(plan, scalars.half, scalars.flag, 8, nullptr), "unscale");
  // ones
  check(cuda::launch_scale_grads(plan, scalars.two, scalars.flag, 8, nullptr), "scale_grads");
  // twos
  arguments.limit = 1.0;
  arguments.scale = scalars.two;
  check(cuda::launch_unscale_clamp(plan, arguments, 8, nullptr), "unscale_clamp");
  expect(norm(), std::sqrt(elements), "norm of what was clamped");
}

void run_results_by_tensor(const Scalars& scalars) {
  core::UnitPlan plan(core::EmptyTensors::kKeep);
  plan.add(0, 0, core::kFloat32);
  add_ones<float>(plan, core::kFloat32, 9000, false);
  float* norms = on_device(std::vector<float>(2));
  void* scratch = nullptr;
  check(cudaMalloc(&scratch, static_cast<std::size_t>(cuda::grad_norms_scratch_bytes(plan))),
        "memory");
  check(cuda::launch_grad_norms(plan, scalars.two, 2.0, scratch, norms, 8, nullptr), "grad_norms");
  expect(on_host(norms, 2)[1], std::sqrt(9000.0) / 2, "norm of a tensor");
  check(cuda::launch_grad_norms(plan, scalars.two, 3.0, scratch, norms, 8, nullptr),
        "grad_norms, 3");
  expect(on_host(norms, 2)[1], std::cbrt(9000.0) / 2, "3-norm of a tensor");
  std::int64_t* rows = on_device(std::vector<std::int64_t>(6));
  check(cuda::launch_find_nonfinite(plan, {false, false}, rows, 8, nullptr), "find_nonfinite");
  expect(static_cast<double>(on_host(rows, 6)[3]), -1.0, "first bad element");
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
  run_passes(scalars);
  run_results_by_tensor(scalars);
  run_step_factors(scalars);
  run_update_scale(scalars);
  check(cudaDeviceSynchronize(), "end");
  std::printf("every kernel was launched\n");
  return 0;
}
