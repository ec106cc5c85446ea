// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// plan_mixed_precision_update for Python. The other two stateless functions are operators and need
// no binding.

#include <ampscaler/functional.h>

#include "bindings/bindings.h"

namespace ampscaler::bindings {
namespace {

using OptionalTensors = std::vector<std::optional<at::Tensor>>;

std::vector<at::Tensor> to_tensors(const OptionalTensors& gradients) {
  std::vector<at::Tensor> result;
  result.reserve(gradients.size());
  for (const std::optional<at::Tensor>& gradient : gradients) {
    result.push_back(gradient.value_or(at::Tensor()));
  }
  return result;
}

OptionalTensors to_optional(const std::vector<at::Tensor>& gradients) {
  OptionalTensors result;
  result.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients) {
    result.push_back(gradient.defined() ? std::optional(gradient) : std::nullopt);
  }
  return result;
}

py::dict plan(const OptionalTensors& scaled, double scale, double max_norm, double backoff_factor) {
  const auto make_plan = [&] {
    const py::gil_scoped_release no_gil;
    return functional::plan_mixed_precision_update(to_tensors(scaled), scale, max_norm,
                                                   backoff_factor);
  };
  const functional::MixedPrecisionPlan result = make_plan();
  py::dict dict;
  dict["gradients"] = to_optional(result.gradients);
  dict["grad_norm"] = result.grad_norm;
  dict["clip_coefficient"] = result.clip_coefficient;
  dict["should_step"] = result.should_step;
  dict["next_scale"] = result.next_scale;
  dict["reason"] = result.reason;
  return dict;
}

}  // namespace

void bind_functional(py::module_& module) {
  module.def("plan_mixed_precision_update", &plan, py::arg("scaled"), py::arg("scale"),
             py::arg("max_norm"), py::arg("backoff_factor") = 0.5,
             "See ampscaler.functional.plan_mixed_precision_update. Waits for the device.");
}

}  // namespace ampscaler::bindings
