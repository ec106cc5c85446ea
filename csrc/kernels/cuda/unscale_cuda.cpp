// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CUDA backend of `unscale_`. Unlike aten's it takes bfloat16, and every dtype in one launch.

#include "kernels/cuda/backends.h"
#include "kernels/cuda/device_call.h"
#include "kernels/cuda/launch.h"
#include "ops/checks.h"
#include "ops/gradient_plan.h"

namespace ampscaler::cuda {
namespace {

// Everything is refused before the first launch.
void check_unscale(at::TensorList grads, const at::Tensor& found_inf, const at::Tensor& inv_scale) {
  ops::check_unscale_scalars(found_inf, inv_scale);
  for (const at::Tensor& grad : grads) {
    ops::check_same_device("unscale_", "grads", grad, grads.front());
    ops::check_unscale_gradient(grad, "cuda");
  }
  ops::check_same_device("unscale_", "found_inf", found_inf, grads.front());
  ops::check_same_device("unscale_", "inv_scale", inv_scale, grads.front());
}

}  // namespace

void unscale(at::TensorList grads, const at::Tensor& found_inf, const at::Tensor& inv_scale) {
  if (grads.empty()) {
    return;
  }
  check_unscale(grads, found_inf, inv_scale);
  const DeviceCall call(grads.front().device());
  const ops::GradientPlan plan(grads, ops::Access::kWrite);
  check_launches(launch_unscale(plan.units(), inv_scale.const_data_ptr<float>(),
                                found_inf.mutable_data_ptr<float>(), call.multiprocessors(),
                                call.stream()));
  plan.copy_back();
}

}  // namespace ampscaler::cuda
