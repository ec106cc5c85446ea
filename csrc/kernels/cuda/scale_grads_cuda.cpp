// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CUDA backend of `scale_grads_`, the second pass of clipping. The host does not know whether anything is
// to be done; the kernel does, and returns at once if not.

#include "kernels/cuda/backends.h"
#include "kernels/cuda/device_call.h"
#include "kernels/cuda/launch.h"
#include "ops/gradient_plan.h"
#include "ops/pass_checks.h"

namespace ampscaler::cuda {

void scale_grads(at::TensorList grads, const at::Tensor& factor, const at::Tensor& found_inf) {
  ops::check_scale_grads(grads, factor, found_inf);
  ops::check_disjoint("scale_grads_", grads);
  ops::bump_versions(grads);
  const DeviceCall call(factor.device());
  const ops::GradientPlan plan(grads, ops::Access::kWrite);
  check_launches(launch_scale_grads(plan.units(), factor.const_data_ptr<float>(),
                                    found_inf.const_data_ptr<float>(), call.multiprocessors(),
                                    call.stream()));
  plan.copy_back();
}

}  // namespace ampscaler::cuda
