// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Every operator schema, in the only TORCH_LIBRARY block: a second one in the process would abort
// it.

#include <ATen/core/op_registration/adaption.h>
#include <torch/library.h>

#include "ampscaler/ops.h"

TORCH_LIBRARY(ampscaler, library) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  library.def("unscale_(Tensor(a!)[] grads, Tensor(b!) found_inf, Tensor inv_scale) -> ()", tags);
  library.def(
      "update_scale_(Tensor(a!) scale, Tensor(b!) growth_tracker, Tensor found_inf, "
      "float growth_factor, float backoff_factor, int growth_interval) -> ()",
      tags);
  library.def(
      "advance_scale_(Tensor(a!) scale, Tensor(b!) growth_tracker, Tensor found_inf, "
      "float[] policy) -> ()",
      tags);
  library.def("unscale_gradients.Tensor(Tensor[] scaled, Tensor scale) -> Tensor[]", tags);
  library.def("unscale_gradients.Scalar(Tensor[] scaled, float scale) -> Tensor[]", tags);
  library.def("global_grad_norm(Tensor[] gradients) -> Tensor", tags);
}

namespace ampscaler::ops {

bool ensure_registered() { return true; }

}  // namespace ampscaler::ops
