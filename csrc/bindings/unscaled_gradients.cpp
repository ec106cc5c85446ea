// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// What ScalePolicy(fix_upstream=True) needs of the walk over Python optimizers: each gradient object is
// divided by the scale once in an iteration, however many parameters and optimizers hold it, and what
// division by the scale would overflow counts as found.

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <ampscaler/gradient_pass.h>
#include <ampscaler/step_result.h>

#include "bindings/bindings.h"
#include "bindings/param_group_walk.h"
#include "bindings/pass_target.h"
#include "bindings/types.h"

namespace ampscaler::bindings {
namespace {

std::int64_t version_of(const at::Tensor& gradient) {
  return gradient.is_inference() ? 0 : gradient._version();
}

// The gradients of this iteration that hold true values. One that someone has written since may have been
// cleared and filled by another backward pass, so it counts as scaled again.
class UnscaledGradients {
 public:
  // With the flag of a fused step, which divides the gradients too unless it is skipped: only the device
  // knows.
  void add(const py::object& param_groups, const std::optional<at::Tensor>& found_inf) {
    if (found_inf) {
      steps_.emplace_back(*found_inf, at::Tensor());
    }
    const std::size_t step = found_inf ? steps_.size() - 1 : kNoStep;
    visit_gradients(param_groups.ptr(), [&](const at::Tensor& gradient) {
      entries_.insert_or_assign(
          gradient.unsafeGetTensorImpl(),
          Entry{WeakTensor(gradient.getIntrusivePtr()), version_of(gradient), step});
      return true;
    });
  }

  // Waits for the device if that is needed to know: once per fused step that shares a gradient.
  bool contains(const at::Tensor& gradient) const {
    const auto found = entries_.find(gradient.unsafeGetTensorImpl());
    if (found == entries_.end() || found->second.version != version_of(gradient)) {
      return false;
    }
    const std::size_t step = found->second.step;
    return step == kNoStep || steps_[step].applied();
  }

  bool contains_any(const py::object& param_groups) const {
    bool found = false;
    visit_gradients(param_groups.ptr(), [&](const at::Tensor& gradient) {
      found = contains(gradient);
      return !found;
    });
    return found;
  }

  // Whether an optimizer that divides all its gradients itself would divide one too often.
  bool shares(const py::object& param_groups) const {
    std::vector<const void*> keys;
    visit_gradients(param_groups.ptr(), [&](const at::Tensor& gradient) {
      keys.push_back(gradient.unsafeGetTensorImpl());
      return true;
    });
    std::ranges::sort(keys);
    return std::ranges::adjacent_find(keys) != keys.end() || contains_any(param_groups);
  }

 private:
  static constexpr std::size_t kNoStep = std::numeric_limits<std::size_t>::max();
  struct Entry {
    WeakTensor address;  // as long as this exists, no other tensor comes to live there
    std::int64_t version;
    std::size_t step;
  };

  std::unordered_map<const void*, Entry> entries_;
  std::vector<StepResult> steps_;
};

FoundInfPerDevice merge(const std::vector<std::vector<DeviceFoundInf>>& flags) {
  FoundInfPerDevice dict;
  for (const auto& list : flags) {
    for (const DeviceFoundInf& flag : list) {
      const py::object device = py::cast(flag.device);
      dict[device] = dict.contains(device)
                         ? at::maximum(py::cast<at::Tensor>(dict[device]), flag.found_inf)
                         : flag.found_inf;
    }
  }
  return dict;
}

PassResult run_without_gil(const std::vector<PassTarget>& targets, const at::Tensor& scale,
                           const ops::GradStatsOptions& options) {
  const py::gil_scoped_release no_gil;
  return run_gradient_pass("unscale_", targets, scale, options);
}

std::optional<FoundInfPerDevice> unscale_once(const py::object& param_groups,
                                              const at::Tensor& scale,
                                              const std::optional<Number>& divisor, bool allow_fp16,
                                              bool write, const UnscaledGradients& unscaled) {
  PassTarget scaled;
  PassTarget known;
  const bool complete = visit_gradients(param_groups.ptr(), [&](const at::Tensor& gradient) {
    TORCH_CHECK_VALUE(allow_fp16 || gradient.scalar_type() != at::kHalf,
                      "Attempting to unscale FP16 gradients.");
    (unscaled.contains(gradient) ? known : scaled).gradients.add(gradient);
    return GradientGroups::may_take_our_operators(gradient);
  });
  if (!complete) {
    return std::nullopt;
  }
  scaled.gradients.remove_duplicates();
  known.gradients.remove_duplicates();
  scaled.write = write ? GradientWrite::kUnscale : GradientWrite::kNothing;
  known.scaled = false;
  ops::GradStatsOptions options;
  options.divisor = to_tensor(divisor);
  const PassResult found = run_without_gil({scaled, known}, scale, options);
  return merge(found.found_inf_per_device);
}

// A fused optimizer computes in float, or in double where gradients are.
std::optional<FoundInfPerDevice> check_for_step(const Target& optimizer, const at::Tensor& scale,
                                                const std::optional<Number>& divisor) {
  PassTarget target;
  bool in_double = false;
  const bool complete =
      visit_gradients(optimizer.param_groups.ptr(), [&](const at::Tensor& gradient) {
        target.gradients.add(gradient);
        in_double = in_double || gradient.scalar_type() == at::kDouble;
        return GradientGroups::may_take_our_operators(gradient);
      });
  if (!complete || !target.gradients.are_disjoint()) {
    return std::nullopt;
  }
  target.user_scale = optimizer.user_scale;
  ops::GradStatsOptions options;
  options.divisor = to_tensor(divisor);
  options.norm_type =
      std::numeric_limits<double>::infinity();  // the largest true gradient, as float
  const PassResult found = run_without_gil({target}, scale, options);
  std::vector<DeviceFoundInf> flags = found.found_inf_per_device.front();
  const c10::AutoGradMode no_grad(false);
  for (DeviceFoundInf& flag : flags) {
    if (!in_double) {
      const at::Tensor overflow = at::isfinite(found.norm).logical_not().to(at::kFloat);
      flag.found_inf = at::maximum(
          flag.found_inf, overflow.to(flag.device, /*non_blocking=*/!flag.device.is_cpu()));
    }
  }
  return merge({flags});
}

}  // namespace

void bind_unscaled_gradients(py::module_& module) {
  py::class_<UnscaledGradients>(
      module, "UnscaledGradients",
      "The gradients of this iteration that were divided by the scale, held weakly.")
      .def(py::init<>())
      .def("add", &UnscaledGradients::add, py::arg("param_groups"),
           py::arg("found_inf") = py::none(),
           "Their gradients hold true values now; with `found_inf`, the flag of a fused step, "
           "unless that step was skipped.")
      .def(
          "contains_any", &UnscaledGradients::contains_any, py::arg("param_groups"),
          "Whether a gradient in there holds its true value. Waits only where a fused step has the "
          "answer.")
      .def("shares", &UnscaledGradients::shares, py::arg("param_groups"),
           "The same, or a gradient in there occurs twice.");
  module.def(
      "unscale_once", &unscale_once, py::arg("param_groups"), py::arg("scale"), py::kw_only(),
      py::arg("divisor"), py::arg("allow_fp16"), py::arg("write"), py::arg("unscaled"),
      "Unscales each gradient object once, in one pass; {device: flag}. Products that are not "
      "finite set the flag too. Those in `unscaled` are only checked.\n\n"
      "None, and nothing touched, when torch must do it. Checks all before the first write.");
  module.def("check_for_step", &check_for_step, py::arg("target"), py::arg("scale"), py::kw_only(),
             py::arg("divisor"),
             "Reads the gradients of a fused optimizer: {device: flag}, set also where dividing "
             "by scale, divisor and the user's grad_scale overflows; or None when torch must do "
             "it. Does not wait.");
}

}  // namespace ampscaler::bindings
