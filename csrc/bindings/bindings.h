// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The parts of the module _C, one function and one file per bound concept. Only module.cpp calls
// them.

#include <torch/csrc/utils/pybind.h>

namespace ampscaler::bindings {

void bind_errors();
void bind_param_groups(py::module_& module);
void bind_gradient_pass(py::module_& module);
void bind_clip_gradients(py::module_& module);
void bind_unscaled_gradients(py::module_& module);
void bind_step_result(py::module_& module);
void bind_scale_policy(py::module_& module);
void bind_amp_scaler(py::module_& module);
void bind_functional(py::module_& module);
void bind_ops(py::module_& module);

}  // namespace ampscaler::bindings
