// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// `unscale_` against torch's operator and against a plain read of the same memory, by dtype and size.

#include <benchmark/benchmark.h>
#include <torch/types.h>

#include <ampscaler/ops.h>

namespace {

// The floor is one read and one write of every byte; a memory copy does the same.
enum class Kernel { kOurs, kAten, kCopy };

void run(Kernel kernel, const at::Tensor& grad, const at::Tensor& copy) {
  static at::Tensor found_inf = at::zeros({});
  static const at::Tensor inv_scale = at::scalar_tensor(0.99999F);
  switch (kernel) {
    case Kernel::kOurs:
      ampscaler::ops::unscale_({grad}, found_inf, inv_scale);
      break;
    case Kernel::kAten:
      at::_amp_foreach_non_finite_check_and_unscale_({grad}, found_inf, inv_scale);
      break;
    case Kernel::kCopy:
      copy.copy_(grad);
      break;
  }
}

void unscale(benchmark::State& state, Kernel kernel, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const at::Tensor grad = at::randn({state.range(0)}).to(dtype);
  const at::Tensor copy = at::empty_like(grad);
  for (auto _ : state) {
    run(kernel, grad, copy);
  }
  const auto bytes = static_cast<std::int64_t>(grad.nbytes());
  state.SetBytesProcessed(2 * bytes * state.iterations());
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(64)->Arg(1 << 16)->Arg(1 << 24)->UseRealTime();
}

BENCHMARK_CAPTURE(unscale, ours_float, Kernel::kOurs, at::kFloat)->Apply(sizes);
BENCHMARK_CAPTURE(unscale, aten_float, Kernel::kAten, at::kFloat)->Apply(sizes);
BENCHMARK_CAPTURE(unscale, copy_float, Kernel::kCopy, at::kFloat)->Apply(sizes);
BENCHMARK_CAPTURE(unscale, ours_bfloat16, Kernel::kOurs, at::kBFloat16)->Apply(sizes);
BENCHMARK_CAPTURE(unscale, aten_bfloat16, Kernel::kAten, at::kBFloat16)->Apply(sizes);
BENCHMARK_CAPTURE(unscale, copy_bfloat16, Kernel::kCopy, at::kBFloat16)->Apply(sizes);
BENCHMARK_CAPTURE(unscale, ours_half, Kernel::kOurs, at::kHalf)->Apply(sizes);
BENCHMARK_CAPTURE(unscale, aten_half, Kernel::kAten, at::kHalf)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
