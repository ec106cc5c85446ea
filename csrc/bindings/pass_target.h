// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// One Python optimizer in a pass over gradients: what kind it is, what has been done with it in this
// iteration, and its gradients.

#include <optional>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include <ampscaler/fp16_grads.h>
#include <ampscaler/gradient_pass.h>

#include "bindings/types.h"

namespace ampscaler::bindings {

std::optional<at::Tensor> to_tensor(const std::optional<Number>& number);

/// What a pass needs to know of an optimizer before it looks at gradients.
struct Target {
  py::object param_groups;
  bool scaled;
  bool allow_fp16;
  std::optional<at::Tensor> user_scale;
  std::optional<at::Tensor> clip_coefficient;
  /// What to write; a clip decides by the rest and by the gradients.
  std::optional<GradientWrite> write;
  bool amp_aware = false;
  bool folds_clip = false;
  bool scale_is_one = false;
};

/// `state` is torch's entry of the optimizer, or None. Gradients are scaled in stage READY.
Target read_target(const py::object& optimizer, const py::object& state, GradientWrite write,
                   bool allow_fp16);

/// The same for a clip, which decides what is written by the kind of the optimizer.
Target clip_target(const py::object& optimizer, const py::object& state, bool enabled,
                   bool scale_is_one, Fp16Grads fp16_grads);

/// With the gradients, each once; nothing if torch must walk the optimizer. c10::ValueError for float16
/// ones that are not allowed.
std::optional<PassTarget> collect(const Target& target);
std::optional<std::vector<PassTarget>> collect_all(const std::vector<Target>& targets);

FoundInfPerDevice to_dict(const std::vector<DeviceFoundInf>& flags);

}  // namespace ampscaler::bindings
