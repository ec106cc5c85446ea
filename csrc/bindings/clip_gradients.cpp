// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// GradScaler.clip_grad_norm_ between its checks and its notes, in one call: a pass over a thousand small
// gradients takes no longer than some ten lines of Python that have left the caches.

#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include <ampscaler/gradient_pass.h>

#include "bindings/bindings.h"
#include "bindings/fp16_grads.h"
#include "bindings/pass_target.h"
#include "bindings/types.h"

namespace ampscaler::bindings {
namespace {

using Objects = py::typing::List<py::object>;
// What is to be noted about one optimizer: flags, the coefficient if the step has to apply it, whether the
// optimizer takes the scale itself.
using Clip = std::tuple<FoundInfPerDevice, std::optional<at::Tensor>, bool>;
// Norm, flag, and a Clip for each optimizer.
using Clips = std::tuple<at::Tensor, at::Tensor, std::vector<Clip>>;

std::vector<Target> read_targets(const Objects& optimizers, const Objects& states, bool enabled,
                                 bool scale_is_one, Fp16Grads fp16_grads) {
  TORCH_CHECK_VALUE(optimizers.size() == states.size(), "clip_gradients: states: expected ",
                    optimizers.size(), ", got ", states.size());
  std::vector<Target> targets;
  targets.reserve(optimizers.size());
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    targets.push_back(clip_target(optimizers[i], states[i], enabled, scale_is_one, fp16_grads));
  }
  return targets;
}

ops::GradStatsOptions pass_options(const std::optional<Number>& divisor, double norm_type,
                                   const Number& max_norm, double eps) {
  ops::GradStatsOptions options;
  options.divisor = to_tensor(divisor);
  options.norm_type = norm_type;
  options.eps = eps;
  if (const auto* limit = std::get_if<Real>(&max_norm)) {
    options.max_norm = *limit;
  } else {
    options.max_norm_tensor = std::get<at::Tensor>(max_norm);
  }
  return options;
}

std::optional<Clips> clip(const std::string& operation, const Objects& optimizers,
                          const Objects& states, bool enabled, bool scale_is_one,
                          const std::string& fp16_grads, const at::Tensor& scale,
                          const std::optional<Number>& divisor, Real norm_type,
                          const Number& max_norm, Real eps) {
  const std::vector<Target> targets =
      read_targets(optimizers, states, enabled, scale_is_one, parse_fp16_grads(fp16_grads));
  const std::optional<std::vector<PassTarget>> collected = collect_all(targets);
  if (!collected) {
    return std::nullopt;
  }
  const ops::GradStatsOptions options = pass_options(divisor, norm_type, max_norm, eps);
  const auto pass = [&] {
    const py::gil_scoped_release no_gil;
    return run_gradient_pass(operation.c_str(), *collected, scale, options);
  };
  const PassResult found = pass();
  Clips result{found.norm, found.found_inf, {}};
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const bool folds = targets[i].folds_clip;
    std::get<2>(result).emplace_back(
        to_dict(found.found_inf_per_device[i]),
        folds ? std::optional(found.clip_coefficients[i]) : std::nullopt, targets[i].amp_aware);
  }
  return result;
}

}  // namespace

void bind_clip_gradients(py::module_& module) {
  module.def(
      "clip_gradients", &clip, py::arg("operation"), py::arg("optimizers"), py::arg("states"),
      py::arg("enabled"), py::arg("scale_is_one"), py::arg("fp16_grads"), py::arg("scale"),
      py::arg("divisor"), py::arg("norm_type"), py::arg("max_norm"), py::arg("eps"),
      "One pass over the gradients of all optimizers, and the second one where a limit binds. "
      "`states` are torch's entries or None.\n\n"
      "Returns (norm, flag, [({device: flag}, coefficient that the step is to apply or None, "
      "whether the optimizer takes the scale itself)]), or None, with nothing touched, when torch "
      "must do it (tensor subclasses). Does not wait.");
}

}  // namespace ampscaler::bindings
