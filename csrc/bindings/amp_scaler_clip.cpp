// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Clips, queries and the divisor of AmpScaler for Python optimizers, one or several.

#include <deque>
#include <optional>
#include <variant>
#include <vector>

#include <torch/csrc/autograd/python_variable.h>

#include "bindings/amp_scaler_class.h"
#include "bindings/python_optimizer.h"
#include "bindings/python_warnings.h"
#include "bindings/types.h"

namespace ampscaler::bindings {
namespace {

using Release = py::gil_scoped_release;

PythonOptimizer adapt(const py::object& optimizer) { return {optimizer, py::args(), py::kwargs()}; }

// A list or tuple is several optimizers, anything else is one.
class Adapters {
 public:
  explicit Adapters(const py::object& optimizers) {
    if (py::isinstance<py::list>(optimizers) || py::isinstance<py::tuple>(optimizers)) {
      for (const py::handle& optimizer : optimizers) {
        add(py::reinterpret_borrow<py::object>(optimizer));
      }
    } else {
      add(optimizers);
    }
  }

  const AmpScaler::OptimizerAdapters& all() const { return references_; }

 private:
  void add(const py::object& optimizer) {
    references_.emplace_back(adapters_.emplace_back(optimizer, py::args(), py::kwargs()));
  }

  std::deque<PythonOptimizer> adapters_;  // which do not move when one is added
  AmpScaler::OptimizerAdapters references_;
};

MaxNorm to_max_norm(const Number& number) {
  const auto* tensor = std::get_if<at::Tensor>(&number);
  return tensor != nullptr ? MaxNorm(*tensor) : MaxNorm(std::get<Real>(number));
}

at::Tensor clip_grad_norm_(AmpScaler& self, const py::object& optimizers, const Number& max_norm,
                           Real norm_type, Real eps) {
  const Adapters adapters(optimizers);
  const Release no_gil;
  return self.clip_grad_norm_(adapters.all(), to_max_norm(max_norm), norm_type, eps);
}

void clip_grad_value_(AmpScaler& self, const py::object& optimizer, Real clip_value) {
  PythonOptimizer adapter = adapt(optimizer);
  const Release no_gil;
  self.clip_grad_value_(adapter, clip_value);
}

at::Tensor grad_norm(const AmpScaler& self, const py::object& optimizers, Real norm_type) {
  const Adapters adapters(optimizers);
  const Release no_gil;
  return self.grad_norm(adapters.all(), norm_type);
}

at::Tensor is_finite(const AmpScaler& self, const py::object& optimizer) {
  PythonOptimizer adapter = adapt(optimizer);
  const Release no_gil;
  return self.is_finite(adapter);
}

bool grads_are_scaled(const AmpScaler& self, const py::object& optimizer) {
  PythonOptimizer adapter = adapt(optimizer);
  const Release no_gil;
  return self.grads_are_scaled(adapter);
}

void set_grad_divisor(AmpScaler& self, const Number& divisor) {
  std::visit([&](const auto& value) { self.set_grad_divisor(value); }, divisor);
}

void bind_queries(ScalerClass& scaler) {
  scaler
      .def("grad_norm", with_python_warnings(&grad_norm), py::arg("optimizer"),
           py::arg("norm_type") = 2.0,
           "The norm of the true gradients, as the optimizer will apply or has applied them. "
           "Leaves no trace. Does not wait.")
      .def("is_finite", with_python_warnings(&is_finite), py::arg("optimizer"),
           "0-dim bool tensor: False if the gradients will have the step skipped. From the check "
           "of this iteration, or else from a read that leaves no trace. Does not wait.")
      .def("grads_are_scaled", with_python_warnings(&grads_are_scaled), py::arg("optimizer"),
           "Whether the gradients are multiplied by the scale right now. Waits only after the step "
           "of an optimizer that was handed the scale: a skipped one leaves them scaled.");
}

}  // namespace

void bind_amp_scaler_clip(ScalerClass& scaler) {
  scaler
      .def("clip_grad_norm_", with_python_warnings(&clip_grad_norm_), py::arg("optimizer"),
           py::arg("max_norm"), py::arg("norm_type") = 2.0, py::arg("eps") = 0.0,
           "Clips the true gradients of an optimizer, or of a list of them together, and returns "
           "their norm before that. Does not wait.\n\n"
           "Instead of unscale_ and torch's clip_grad_norm_, with any optimizer: ordinary ones are "
           "unscaled by it, torch's fused ones get the coefficient with the scale in step. "
           "Non-finite gradients are not clipped, and the step is skipped.")
      .def("clip_grad_value_", with_python_warnings(&clip_grad_value_), py::arg("optimizer"),
           py::arg("clip_value"),
           "Unscales the gradients, if that was not done, and clamps them to [-clip_value, "
           "clip_value]. Does not wait.")
      .def("set_grad_divisor", with_python_warnings(&set_grad_divisor), py::arg("divisor"),
           "The total weight of the gradients accumulated until the next update(): true gradients "
           "are smaller by it. A tensor is not read; a useless one has the steps skipped.");
  bind_queries(scaler);
}

}  // namespace ampscaler::bindings
