// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// aten_unscale(), in a file of its own: it has torch's headers.

#include "simt/aten_unscale.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace ampscaler::cuda::test {
namespace {

at::ScalarType scalar_type(core::DataType dtype) {
  switch (dtype) {
    case core::kFloat16:
      return at::kHalf;
    case core::kBFloat16:
      return at::kBFloat16;
    case core::kFloat32:
      return at::kFloat;
    default:
      return at::kDouble;
  }
}

}  // namespace

float aten_unscale(void* values, std::int64_t elements, core::DataType dtype, float inv_scale) {
  at::Tensor gradient = at::from_blob(values, {elements}, at::TensorOptions(scalar_type(dtype)));
  at::Tensor found_inf = at::zeros({1});
  at::_amp_foreach_non_finite_check_and_unscale_(gradient, found_inf, at::full({1}, inv_scale));
  return found_inf.item<float>();
}

}  // namespace ampscaler::cuda::test
