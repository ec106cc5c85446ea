// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Unscale and clip from C++: one pass of ours against the LibTorch recipe, aten's unscaling and
// torch::nn::utils::clip_grad_norm_. Both take turns on the same gradients; a row shows both times.

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>

#include <ampscaler/gradient_pass.h>
#include <ampscaler/gradient_prefetch.h>

namespace {

constexpr double kNeverBinds = 1e30;

std::vector<at::Tensor> make_parameters(std::int64_t count, std::int64_t size) {
  std::vector<at::Tensor> parameters;
  for (std::int64_t i = 0; i < count; ++i) {
    at::Tensor parameter = at::empty({size}).set_requires_grad(true);  // never read
    parameter.mutable_grad() = at::randn({size});
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

void torch_recipe(const std::vector<at::Tensor>& parameters, const at::Tensor& inv_scale) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    gradients.push_back(parameter.grad());
  }
  at::Tensor found_inf = at::zeros({});
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inv_scale);
  torch::nn::utils::clip_grad_norm_(parameters, kNeverBinds);
}

void one_pass(const std::vector<at::Tensor>& parameters, const at::Tensor& scale,
              ampscaler::GradientWrite write) {
  std::vector<ampscaler::PassTarget> targets(1);
  targets.front().write = write;
  targets.front().gradients.reserve(parameters.size());
  ampscaler::for_each_with_gradient(
      parameters, [&](const at::Tensor& /*parameter*/, const at::Tensor& gradient) {
        targets.front().gradients.add(gradient);
      });
  ampscaler::ops::GradStatsOptions options;
  options.max_norm = kNeverBinds;
  ampscaler::run_gradient_pass("clip_bench", targets, scale, options);
}

// glibc merges small free chunks when a large one is asked for next. torch's recipe frees thousands, and
// whoever comes next would pay for them: so this is done before the clock starts.
void merge_free_chunks() {
  constexpr std::size_t kLarge = std::size_t{64} * 1024;
  benchmark::DoNotOptimize(std::vector<char>(kLarge).data());
}

template <typename Call>
double microseconds(const Call& call) {
  merge_free_chunks();
  const auto begin = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - begin;
  return elapsed.count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

struct Problem {
  std::int64_t count;
  std::int64_t size;
  bool fused;   // ours only reads
  double goal;  // 0: none
};

// The scale is 2 and 0.5 in turn, so that the gradients neither grow nor vanish.
void clip(benchmark::State& state, Problem problem) {
  const auto write =
      problem.fused ? ampscaler::GradientWrite::kNothing : ampscaler::GradientWrite::kUnscale;
  const std::vector<at::Tensor> parameters = make_parameters(problem.count, problem.size);
  at::Tensor scale = at::scalar_tensor(2.0F);
  std::vector<double> torch_times;
  std::vector<double> our_times;
  for (auto _ : state) {
    const at::Tensor inverse = scale.reciprocal();
    torch_times.push_back(microseconds([&] { torch_recipe(parameters, inverse); }));
    scale = inverse;
    our_times.push_back(microseconds([&] { one_pass(parameters, scale, write); }));
    scale = problem.fused ? scale : scale.reciprocal();
    state.SetIterationTime(1e-6 * our_times.back());
  }
  state.counters["torch_us"] = median(torch_times);
  state.counters["ours_us"] = median(our_times);
  state.counters["ratio"] = median(torch_times) / median(our_times);
  state.counters["ratio_of_best"] =
      *std::ranges::min_element(torch_times) / *std::ranges::min_element(our_times);
  state.counters["goal"] = problem.goal;
}

void add(const Problem& problem) {
  const std::string name = "clip/" + std::to_string(problem.count) + "x" +
                           std::to_string(problem.size) + (problem.fused ? "/fused" : "/ordinary");
  benchmark::RegisterBenchmark(name.c_str(), clip, problem)->UseManualTime()->MinTime(0.2);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::AddCustomContext("torch threads", std::to_string(at::get_num_threads()));
  add({1000, 64, true, 25});
  for (const Problem problem :
       {Problem{1000, 64, false, 0}, Problem{1000, 4096, true, 0}, Problem{1000, 4096, false, 0},
        Problem{5000, 64, true, 0}, Problem{5000, 64, false, 0}}) {
    add(problem);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
