// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Looks at Python optimizers for a pass. In C++, since a pass over a thousand small gradients takes no
// longer than some ten lines of Python that have left the caches.

#include "bindings/pass_target.h"

#include <utility>

#include <ATen/ops/full.h>
#include <pybind11/gil_safe_call_once.h>

#include "bindings/names.h"
#include "bindings/param_group_walk.h"
#include "bindings/python_optimizer.h"

namespace ampscaler::bindings {
namespace {

py::object import_ready() {
  return py::module_::import("torch.amp.grad_scaler").attr("OptState").attr("READY");
}

bool is_ready(const py::object& state) {
  if (state.is_none()) {
    return true;
  }
  static py::gil_safe_call_once_and_store<py::object> ready;
  const py::object stage = state[py::handle(names().stage)];
  return stage.is(ready.call_once_and_store_result(import_ready).get_stored());
}

std::optional<at::Tensor> left_coefficient(const py::object& state) {
  const py::handle name = names().clip_coefficient;
  if (state.is_none() || !py::cast<py::dict>(state).contains(name)) {
    return std::nullopt;
  }
  return py::cast<at::Tensor>(state[name]);
}

}  // namespace

std::optional<at::Tensor> to_tensor(const std::optional<Number>& number) {
  if (!number) {
    return std::nullopt;
  }
  const auto* tensor = std::get_if<at::Tensor>(&*number);
  return tensor != nullptr
             ? *tensor
             : at::full({}, static_cast<double>(std::get<Real>(*number)), at::kDouble);
}

Target read_target(const py::object& optimizer, const py::object& state, GradientWrite write,
                   bool allow_fp16) {
  const PythonOptimizer kind(optimizer, py::args(), py::kwargs());
  Target target;
  target.amp_aware = kind.claims_amp_support();
  target.param_groups = optimizer.attr(py::handle(names().param_groups));
  target.scaled = is_ready(state);
  target.write = write;
  target.allow_fp16 = allow_fp16;
  if (target.amp_aware) {
    target.user_scale = kind.user_grad_scale();
    // The signature last: looking it up takes as long as a pass over a thousand small gradients.
    if (target.user_scale && !kind.is_amp_aware()) {
      target.user_scale = std::nullopt;
    }
  }
  target.clip_coefficient = left_coefficient(state);
  return target;
}

Target clip_target(const py::object& optimizer, const py::object& state, bool enabled,
                   bool scale_is_one, Fp16Grads fp16_grads) {
  Target target = read_target(optimizer, state, GradientWrite::kNothing, /*allow_fp16=*/true);
  target.write = std::nullopt;
  target.scale_is_one = scale_is_one;
  target.amp_aware = target.amp_aware && enabled;
  target.folds_clip = target.amp_aware && folds_clip(optimizer);
  target.allow_fp16 = may_clip_fp16(fp16_grads, enabled && target.scaled,
                                    /*by_optimizer=*/target.amp_aware);
  return target;
}

std::optional<PassTarget> collect(const Target& target) {
  PassTarget result;
  result.gradients.reserve(parameter_count(target.param_groups.ptr()));
  const bool complete = visit_gradients(
      target.param_groups.ptr(),
      [&](const at::Tensor& gradient) {
        TORCH_CHECK_VALUE(target.allow_fp16 || gradient.scalar_type() != at::kHalf,
                          "Attempting to unscale FP16 gradients.");
        result.gradients.add(gradient);
        return true;
      },
      FunctionModes::kIgnored);
  if (!complete) {
    return std::nullopt;
  }
  result.gradients.remove_duplicates();
  result.scaled = target.scaled;
  result.user_scale = target.user_scale;
  result.clip_coefficient = target.clip_coefficient;
  result.write = target.write
                     ? *target.write
                     : clip_write(result, target.amp_aware, target.folds_clip, target.scale_is_one);
  return result;
}

std::optional<std::vector<PassTarget>> collect_all(const std::vector<Target>& targets) {
  std::vector<PassTarget> result;
  result.reserve(targets.size());
  for (const Target& target : targets) {
    std::optional<PassTarget> collected = collect(target);
    if (!collected) {
      return std::nullopt;
    }
    result.push_back(std::move(*collected));
  }
  return result;
}

FoundInfPerDevice to_dict(const std::vector<DeviceFoundInf>& flags) {
  FoundInfPerDevice dict;
  for (const DeviceFoundInf& flag : flags) {
    dict[py::cast(flag.device)] = flag.found_inf;
  }
  return dict;
}

}  // namespace ampscaler::bindings
