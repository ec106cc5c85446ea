// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Counted reads from the device to the host.

#include "scaler/host_read.h"

#include <atomic>

#include <ATen/ops/stack.h>

#include "ampscaler/step_result.h"
#include "ops/device_copy.h"

namespace ampscaler {
namespace {

std::atomic<std::int64_t>& counter() {
  static std::atomic<std::int64_t> reads{0};
  return reads;
}

}  // namespace

std::int64_t host_read_count() { return counter().load(std::memory_order_relaxed); }

double read_scalar(const at::Tensor& scalar) {
  counter().fetch_add(1, std::memory_order_relaxed);
  return scalar.item().toDouble();
}

std::pair<double, double> read_scalars(const at::Tensor& first, const at::Tensor& second) {
  counter().fetch_add(1, std::memory_order_relaxed);
  const at::Tensor both = at::stack({first.to(at::kDouble), second.to(at::kDouble)}).cpu();
  const auto* values = both.const_data_ptr<double>();
  return {values[0], values[1]};
}

double read_sum(const std::vector<at::Tensor>& scalars) {
  counter().fetch_add(1, std::memory_order_relaxed);
  double sum = 0.0;
  if (scalars.size() == 1) {
    return scalars.front().item().toDouble();
  }
  std::vector<at::Tensor> gathered;
  gathered.reserve(scalars.size());
  for (const at::Tensor& scalar : scalars) {
    gathered.push_back(
        ops::on_device(scalar.reshape({}), scalars.front().device()).to(at::kDouble));
  }
  const at::Tensor values = gathered.empty() ? at::Tensor() : at::stack(gathered).cpu();
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    sum += values.const_data_ptr<double>()[i];
  }
  return sum;
}

}  // namespace ampscaler
