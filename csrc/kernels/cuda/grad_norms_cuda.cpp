// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CUDA backend of `grad_norms`: the sums of all units go to memory, and are added per tensor from there.

#include "kernels/cuda/backends.h"
#include "kernels/cuda/device_call.h"
#include "kernels/cuda/launch.h"
#include "ops/gradient_plan.h"
#include "ops/pass_checks.h"

namespace ampscaler::cuda {

at::Tensor grad_norms(at::TensorList grads, const at::Tensor& scale, double norm_type) {
  ops::check_grad_norms(grads, scale, norm_type);
  const DeviceCall call(scale.device());
  const ops::GradientPlan plan(grads, ops::Access::kRead, core::EmptyTensors::kKeep);
  at::Tensor norms = call.empty({static_cast<std::int64_t>(grads.size())}, at::kFloat);
  const at::Tensor scratch = call.empty({grad_norms_scratch_bytes(plan.units())}, at::kByte);
  check_launches(launch_grad_norms(plan.units(), scale.const_data_ptr<float>(), norm_type,
                                   scratch.mutable_data_ptr(), norms.mutable_data_ptr<float>(),
                                   call.multiprocessors(), call.stream()));
  return norms;
}

}  // namespace ampscaler::cuda
