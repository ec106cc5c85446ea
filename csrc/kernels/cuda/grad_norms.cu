// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// launch_grad_norms(). No ATen header here: it would be parsed once per architecture.

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/grad_norms_op.cuh"
#include "kernels/cuda/launch.h"

namespace ampscaler::cuda {

std::int64_t grad_norms_scratch_bytes(const core::UnitPlan& plan) {
  return static_cast<std::int64_t>(plan.unit_total()) * static_cast<std::int64_t>(sizeof(UnitSums));
}

cudaError_t launch_grad_norms(const core::UnitPlan& plan, const float* scale, double norm_type,
                              void* scratch, float* norms, int multiprocessors,
                              cudaStream_t stream) {
  CudaLauncher launcher{stream};
  grad_norms_pass(launcher, plan, scale, norm_type, static_cast<UnitSums*>(scratch), norms,
                  multiprocessors);
  return launcher.error;
}

}  // namespace ampscaler::cuda
