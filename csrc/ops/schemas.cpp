// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Every operator schema, in the only TORCH_LIBRARY block: a second one in the process would abort
// it.

#include <string>

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
  // What every pass over gradients takes besides them: core/clip.h says how it relates stored and true
  // gradients.
  const std::string pass =
      "Tensor scale, *, Tensor? divisor=None, Tensor? user_scale=None, float norm_type=2, "
      "float? max_norm=None, Tensor? max_norm_tensor=None, float eps=0, ";
  const std::string results = " -> (Tensor stats, Tensor factors)";
  const auto define = [&](const std::string& schema) {
    library.def((schema + results).c_str(), tags);
  };
  define("grad_stats(Tensor[] grads, " + pass + "Tensor(a!)? accumulate=None)");
  define("unscale_with_stats_(Tensor(a!)[] grads, " + pass + "Tensor(b!)? accumulate=None)");
  define(
      "unscale_clamp_(Tensor(a!)[] grads, Tensor scale, float clip_value, *, Tensor? divisor=None, "
      "Tensor? user_scale=None)");
  define(
      "merge_stats(Tensor[] stats, *, float norm_type=2, float? max_norm=None, "
      "Tensor? max_norm_tensor=None, float eps=0)");
  library.def("scale_grads_(Tensor(a!)[] grads, Tensor factor, Tensor found_inf) -> ()", tags);
  library.def("find_nonfinite(Tensor[] grads) -> Tensor", tags);
  library.def("grad_norms(Tensor[] grads, Tensor scale, float norm_type=2) -> Tensor", tags);
  library.def(
      "step_factors(Tensor found_inf, *, Tensor? scale=None, Tensor? divisor=None, "
      "Tensor? user_scale=None, Tensor? clip_coefficient=None) -> Tensor factors",
      tags);
  library.def("unscale_gradients.Tensor(Tensor[] scaled, Tensor scale) -> Tensor[]", tags);
  library.def("unscale_gradients.Scalar(Tensor[] scaled, float scale) -> Tensor[]", tags);
  library.def("global_grad_norm(Tensor[] gradients) -> Tensor", tags);
  library.def(
      "unscale_and_clip(Tensor[] scaled, Tensor scale, float max_norm, *, "
      "Tensor? max_norm_tensor=None, float norm_type=2, float eps=0) -> "
      "(Tensor[] gradients, Tensor grad_norm, Tensor clip_coefficient, Tensor found_inf)",
      tags);
}

namespace ampscaler::ops {

bool ensure_registered() { return true; }

}  // namespace ampscaler::ops
