// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CUDA backend of `unscale_`, torch's side: checks, device guard, current stream, registration.

#include <map>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "kernels/cuda/launch.h"
#include "ops/checks.h"
#include "ops/signatures.h"

namespace ampscaler {
namespace {

cuda::ElementType element_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return cuda::ElementType::kFloat16;
    case at::kBFloat16:
      return cuda::ElementType::kBFloat16;
    case at::kDouble:
      return cuda::ElementType::kFloat64;
    default:
      return cuda::ElementType::kFloat32;  // check_unscale_gradient has refused all others
  }
}

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

void unscale_cuda(at::TensorList grads, const at::Tensor& found_inf, const at::Tensor& inv_scale) {
  if (grads.empty()) {
    return;
  }
  check_unscale(grads, found_inf, inv_scale);
  const at::AutoDispatchBelowADInplaceOrView no_version_bumps;
  const c10::cuda::CUDAGuard guard(grads.front().device());
  const auto stream = c10::cuda::getCurrentCUDAStream();
  std::map<cuda::ElementType, std::vector<core::FlatTensor>> by_type;
  std::vector<std::pair<at::Tensor, at::Tensor>>
      copies;  // gradients with gaps, and what the kernel works on instead
  for (const at::Tensor& grad : grads) {
    at::Tensor flat = grad;
    if (!grad.is_non_overlapping_and_dense()) {
      flat = grad.contiguous();
      copies.emplace_back(grad, flat);
    }
    by_type[element_type(grad.scalar_type())].push_back({flat.mutable_data_ptr(), flat.numel()});
  }
  for (const auto& [type, tensors] : by_type) {
    C10_CUDA_CHECK(cuda::launch_unscale(type, tensors, inv_scale.const_data_ptr<float>(),
                                        found_inf.mutable_data_ptr<float>(), stream.stream()));
  }
  for (const auto& [grad, flat] : copies) {
    grad.copy_(flat);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, CUDA, library) {
  library.impl("unscale_", static_cast<ops::UnscaleFunction*>(&unscale_cuda));
}

}  // namespace ampscaler
