// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CUDA backend of `find_nonfinite`. Kernels know positions in memory, so a gradient whose elements lie in
// another order than that of their indices is copied: which ones hold something the host does not know.

#include <vector>

#include "kernels/cuda/backends.h"
#include "kernels/cuda/device_call.h"
#include "kernels/cuda/launch.h"
#include "ops/gradient_plan.h"
#include "ops/pass_checks.h"

namespace ampscaler::cuda {

at::Tensor find_nonfinite(at::TensorList grads) {
  ops::check_find_nonfinite(grads);
  TORCH_INTERNAL_ASSERT(!grads.empty());  // a list without tensors comes to no device
  const DeviceCall call(grads.front().device());
  const ops::GradientPlan plan(grads, ops::Access::kRead, core::EmptyTensors::kKeep,
                               ops::Order::kByIndex);
  std::vector<bool> is_complex;
  is_complex.reserve(grads.size());
  for (const at::Tensor& grad : grads) {
    is_complex.push_back(grad.is_complex());
  }
  at::Tensor rows = call.empty({static_cast<std::int64_t>(grads.size()), 3}, at::kLong);
  check_launches(launch_find_nonfinite(plan.units(), is_complex,
                                       rows.mutable_data_ptr<std::int64_t>(),
                                       call.multiprocessors(), call.stream()));
  return rows;
}

}  // namespace ampscaler::cuda
