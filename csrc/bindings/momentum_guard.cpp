// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Which parameters get their first momentum buffer in a step, and its removal after a skip.

#include "bindings/momentum_guard.h"

#include <ampscaler/step_result.h>

namespace ampscaler::bindings {
namespace {

constexpr const char* kBuffer = "momentum_buffer";

bool is_sgd(const py::object& optimizer) {
  return py::isinstance(optimizer, py::module_::import("torch.optim").attr("SGD"));
}

bool has_momentum(const py::dict& group) {
  return group.contains("momentum") && PyObject_IsTrue(group["momentum"].ptr()) == 1;
}

bool has_buffer(const py::object& state) {
  return !state.is_none() && state.contains(kBuffer) && !state[kBuffer].is_none();
}

// Lets other Python threads run while it waits.
bool was_applied(const at::Tensor& found_inf) {
  const StepResult result(found_inf, at::Tensor());
  const py::gil_scoped_release no_gil;
  return result.applied();
}

}  // namespace

MomentumGuard::MomentumGuard(const py::object& optimizer) {
  if (!is_sgd(optimizer)) {
    return;
  }
  states_ = optimizer.attr("state");
  for (const py::handle& group : optimizer.attr("param_groups")) {
    remember(py::cast<py::dict>(group));
  }
}

void MomentumGuard::remember(const py::dict& group) {
  if (!has_momentum(group)) {
    return;
  }
  const py::object get = states_.attr("get");  // a lookup by [] would create an entry
  for (const py::handle& parameter : group["params"]) {
    if (!parameter.attr("grad").is_none() && !has_buffer(get(parameter))) {
      parameters_.push_back(py::reinterpret_borrow<py::object>(parameter));
    }
  }
}

void MomentumGuard::after_step(const at::Tensor& found_inf) const {
  if (parameters_.empty() || was_applied(found_inf)) {
    return;
  }
  for (const py::object& parameter : parameters_) {
    const py::object state = states_.attr("get")(parameter);
    if (!state.is_none()) {
      state.attr("pop")(kBuffer, py::none());
    }
    if (!state.is_none() && py::len(state) == 0) {
      states_.attr("pop")(parameter);
    }
  }
}

}  // namespace ampscaler::bindings
