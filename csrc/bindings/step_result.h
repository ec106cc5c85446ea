// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// A StepResult with the value of a Python optimizer, which may be of any type.

#include <torch/csrc/utils/pybind.h>

#include <ampscaler/step_result.h>

namespace ampscaler::bindings {

struct PythonStepResult {
  StepResult result;
  py::object value;
};

}  // namespace ampscaler::bindings
