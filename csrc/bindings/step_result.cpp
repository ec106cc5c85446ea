// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// StepResult and StepOutcome for Python.

#include "bindings/step_result.h"

#include <pybind11/native_enum.h>

#include "bindings/bindings.h"

namespace ampscaler::bindings {
namespace {

std::optional<at::Tensor> found_inf(const PythonStepResult& self) {
  const at::Tensor& flag = self.result.found_inf();
  return flag.defined() ? std::optional(flag) : std::nullopt;
}

std::string describe(const PythonStepResult& self) {
  return c10::str("StepResult(found_inf=", self.result.found_inf().defined() ? "tensor" : "None",
                  ", value=", std::string(py::repr(self.value)), ")");
}

}  // namespace

void bind_step_result(py::module_& module) {
  py::native_enum<StepOutcome>(module, "StepOutcome", "enum.Enum", "What AmpScaler.step did.")
      .value("APPLIED", StepOutcome::kApplied)
      .value("SKIPPED_NONFINITE", StepOutcome::kSkippedNonfinite)
      .value("DISABLED", StepOutcome::kDisabled)
      .finalize();
  py::class_<PythonStepResult>(module, "StepResult",
                               "What AmpScaler.step did, and what the optimizer's step returned.")
      .def(
          "applied", [](const PythonStepResult& self) { return self.result.applied(); },
          py::call_guard<py::gil_scoped_release>(),
          "True if the optimizer changed the parameters. Waits for the device if the decision was "
          "left to it.")
      .def(
          "outcome", [](const PythonStepResult& self) { return self.result.outcome(); },
          py::call_guard<py::gil_scoped_release>(),
          "The StepOutcome. Waits for the device if the decision was left to it.")
      .def_property_readonly(
          "found_inf", &found_inf,
          "0-dim float32 tensor, exactly 0 or 1; None when the scaler is disabled. Does not wait.")
      .def_readonly("value", &PythonStepResult::value,
                    "What the optimizer's step returned; None when it was skipped.")
      .def("__reduce_ex__",
           [](const py::object& /*self*/, const py::args& /*protocol*/) {
             throw py::type_error("StepResult cannot be pickled or copied");
           })
      .def("__repr__", &describe);
  module.def("host_read_count", &host_read_count,
             "How often this process has waited for a device in ampscaler.");
}

}  // namespace ampscaler::bindings
