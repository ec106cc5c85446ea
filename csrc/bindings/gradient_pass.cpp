// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The one pass over the gradients of Python optimizers: walked, checked, measured and written behind one
// call; and the step of an optimizer that applies scale and clip coefficient itself.

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/python_variable.h>

#include <ampscaler/gradient_pass.h>
#include <ampscaler/step_result.h>

#include "bindings/bindings.h"
#include "bindings/param_group_walk.h"
#include "bindings/pass_target.h"
#include "bindings/python_optimizer.h"
#include "bindings/types.h"

namespace ampscaler::bindings {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

struct Result {
  at::Tensor norm;
  at::Tensor found_inf;
};

void add_all(const GradientLists& from, GradientLists& to) {
  for (const GradientLists::DeviceList& list : from.lists()) {
    for (const at::Tensor& gradient : list.gradients) {
      to.add(gradient);
    }
  }
}

// A mere query is answered for gradients that share memory too, also with those of another optimizer: by
// torch's functions.
bool is_for_torch(const std::vector<PassTarget>& targets) {
  GradientLists read;
  for (const PassTarget& target : targets) {
    if (target.write != GradientWrite::kNothing) {
      return false;
    }
    add_all(target.gradients, read);
  }
  return !read.are_disjoint();
}

std::optional<Result> run(const std::string& operation, const std::vector<Target>& targets,
                          const at::Tensor& scale, const std::optional<Number>& divisor,
                          Real norm_type) {
  const std::optional<std::vector<PassTarget>> collected = collect_all(targets);
  if (!collected || is_for_torch(*collected)) {
    return std::nullopt;
  }
  ops::GradStatsOptions options;
  options.divisor = to_tensor(divisor);
  options.norm_type = norm_type;
  const py::gil_scoped_release no_gil;
  const PassResult found = run_gradient_pass(operation.c_str(), *collected, scale, options);
  return Result{found.norm, found.found_inf};
}

std::optional<FoundInfPerDevice> clamp(const Target& target, const at::Tensor& scale,
                                       const std::optional<Number>& divisor, Real clip_value) {
  const std::optional<PassTarget> collected = collect(target);
  if (!collected) {
    return std::nullopt;
  }
  const auto pass = [&] {
    const py::gil_scoped_release no_gil;
    return clamp_gradients(*collected, scale, to_tensor(divisor), clip_value);
  };
  return to_dict(pass());
}

// Nothing also where a fused optimizer's own check is not this pass: torch accepts gradients that share
// memory and kinds that a pass refuses.
std::optional<FoundInfPerDevice> check(const py::object& param_groups, const at::Tensor& scale) {
  PassTarget target;
  const bool complete = visit_gradients(param_groups.ptr(), [&](const at::Tensor& gradient) {
    target.gradients.add(gradient);
    return GradientGroups::is_plain(gradient) &&
           !(gradient.scalar_type() == at::kBFloat16 && gradient.is_cuda());
  });
  if (!complete || !target.gradients.are_disjoint()) {
    return std::nullopt;
  }
  target.scaled = false;
  const auto pass = [&] {
    const py::gil_scoped_release no_gil;
    return run_gradient_pass("step", {target}, scale, {});
  };
  return to_dict(pass().found_inf_per_device.front());
}

std::pair<at::Tensor, at::Tensor> inverse(const at::Tensor& scale,
                                          const std::optional<Number>& divisor) {
  const InverseScale result = inverse_scale(scale, to_tensor(divisor));
  return {result.inv_scale, result.found_inf};
}

std::vector<DeviceFoundInf> with_devices(const std::vector<at::Tensor>& found_infs) {
  std::vector<DeviceFoundInf> flags;
  flags.reserve(found_infs.size());
  for (const at::Tensor& found_inf : found_infs) {
    flags.push_back({found_inf.device(), found_inf});
  }
  return flags;
}

at::Tensor combine(const std::vector<at::Tensor>& found_infs, c10::Device device) {
  return combine_found_inf(with_devices(found_infs), device);
}

double sum(const std::vector<at::Tensor>& found_infs) {
  const py::gil_scoped_release no_gil;
  return sum_found_inf(with_devices(found_infs));
}

std::pair<py::object, at::Tensor> step_amp_aware(
    const py::object& optimizer, const py::typing::Tuple<py::object, py::ellipsis>& args,
    const py::dict& kwargs, const std::vector<at::Tensor>& found_infs, const OptionalTensor& scale,
    const std::optional<Number>& divisor, const OptionalTensor& clip_coefficient,
    c10::Device device) {
  PythonOptimizer adapter(optimizer, py::args(args), py::kwargs(kwargs));
  const StepFactors factors = step_factors(combine(found_infs, device), scale, to_tensor(divisor),
                                           adapter.user_grad_scale(), clip_coefficient);
  adapter.step_amp(factors.grad_scale, factors.found_inf);
  if (py::hasattr(optimizer, "grad_scale")) {
    py::delattr(optimizer, "grad_scale");  // as torch's step does with a factor of the user
  }
  return {adapter.value(), factors.found_inf.clone()};
}

void bind_passes(py::module_& module) {
  module.def(
      "run_gradient_pass", &run, py::arg("operation"), py::arg("targets"), py::arg("scale"),
      py::arg("divisor"), py::arg("norm_type"),
      "One pass over the gradients of all targets: the total norm, and unscaling if it is to be "
      "written.\n\n"
      "None, and nothing touched, when torch must do it (tensor subclasses, function modes). "
      "Does not wait.");
  module.def("check_param_groups", &check, py::arg("param_groups"), py::arg("scale"),
             "torch.amp.GradScaler._check_inf_per_device by reading only: {device: flag}, or None "
             "when torch must do it. Does not wait.");
  module.def(
      "clamp_gradients", &clamp, py::arg("target"), py::arg("scale"), py::kw_only(),
      py::arg("divisor"), py::arg("clip_value"),
      "Unscales and clamps to [-clip_value, clip_value] in one pass; {device: flag}, or None "
      "like run_gradient_pass. Does not wait.");
}

void bind_factors(py::module_& module) {
  module.def("inverse_scale", &inverse, py::arg("scale"), py::arg("divisor"),
             "(float32(1 / (scale * divisor)), flag): what torch's unscaling multiplies by, and 1 "
             "where the divisor is of no use. Does not wait.");
  module.def("combine_found_inf", &combine, py::arg("found_infs"), py::arg("device"),
             "The maximum of the flags, exactly 0 or 1. Does not wait.");
  module.def("sum_found_inf", &sum, py::arg("found_infs"),
             "The sum of the flags, on any devices. Waits once.");
  module.def("step_amp_aware", &step_amp_aware, py::arg("optimizer"), py::arg("args"),
             py::arg("kwargs"), py::kw_only(), py::arg("found_infs"), py::arg("scale"),
             py::arg("divisor"), py::arg("clip_coefficient"), py::arg("device"),
             "optimizer.step(*args, **kwargs) with `grad_scale` and `found_inf` as attributes for "
             "its length. Returns its value and the flag.\n\n"
             "Waits only where a fused SGD creates momentum buffers.");
  module.def(
      "is_found_inf", [](const at::Tensor& flag) { return !StepResult(flag, {}).applied(); },
      py::arg("found_inf"), py::call_guard<py::gil_scoped_release>(),
      "Whether the flag is set. Waits.");
  module.def(
      "applies_clip_coefficient",
      [](const py::object& optimizer) {
        return PythonOptimizer(optimizer, py::args(), py::kwargs()).folds_clip();
      },
      py::arg("optimizer"),
      "True for torch's own fused optimizers: what is set as their grad_scale is sure to be "
      "applied.");
}

}  // namespace

void bind_gradient_pass(py::module_& module) {
  py::enum_<GradientWrite>(module, "GradientWrite", "What a pass writes into gradients.")
      .value("NOTHING", GradientWrite::kNothing)
      .value("UNSCALE", GradientWrite::kUnscale);
  py::class_<Target>(module, "PassTarget", "The gradients of one optimizer in a pass.")
      .def(py::init(&read_target), py::arg("optimizer"), py::arg("state"), py::arg("write"),
           py::arg("allow_fp16"));
  py::class_<Result>(module, "PassResult", "What a pass has found.")
      .def_readonly("norm", &Result::norm)
      .def_readonly("found_inf", &Result::found_inf);
  bind_passes(module);
  bind_factors(module);
}

}  // namespace ampscaler::bindings
