// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Walks and steps Python optimizers; torch's fused ones get scale and flag as attributes for the
// length of one call.

#include "bindings/python_optimizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <pybind11/gil_safe_call_once.h>
#include <torch/csrc/autograd/python_variable.h>

#include <ampscaler/errors.h>

#include "bindings/momentum_guard.h"
#include "bindings/names.h"

namespace ampscaler::bindings {
namespace {

// The attribute, or `otherwise` if there is none. Other errors of the lookup pass. Most optimizers have
// no grad_scale: an AttributeError that nobody sees would take as long as all the rest.
py::object attribute_or(const py::object& object, py::handle name, py::object otherwise) {
  PyObject* found = nullptr;
#if PY_VERSION_HEX >= 0x030D0000
  const int status = PyObject_GetOptionalAttr(object.ptr(), name.ptr(), &found);
#else
  const int status = _PyObject_LookupAttr(object.ptr(), name.ptr(), &found);
#endif
  if (status < 0) {
    throw py::error_already_set();
  }
  return status == 0 ? std::move(otherwise) : py::reinterpret_steal<py::object>(found);
}

// Sets an attribute, and restores what was there before (or its absence), also when the step
// raises.
class ScopedAttribute {
 public:
  ScopedAttribute(py::object object, const char* name, const py::object& value)
      : object_(std::move(object)), name_(name), before_(own_attribute(object_, name)) {
    object_.attr(name) = value;
  }
  ScopedAttribute(const ScopedAttribute&) = delete;
  ScopedAttribute& operator=(const ScopedAttribute&) = delete;
  ~ScopedAttribute() {
    const py::error_scope keep_error;
    const int failed = before_ ? PyObject_SetAttrString(object_.ptr(), name_, before_.ptr())
                               : PyObject_DelAttrString(object_.ptr(), name_);
    if (failed != 0) {
      PyErr_Clear();  // the optimizer removed it itself
    }
  }

 private:
  static py::object own_attribute(const py::object& object, const char* name) {
    const py::dict own = attribute_or(object, names().own_dict, py::dict());
    return own.contains(name) ? py::object(own[name]) : py::object();
  }

  py::object object_;
  const char* name_;
  py::object before_;
};

at::Tensor as_tensor(const py::handle& parameter) {
  if (!THPVariable_Check(parameter.ptr())) {
    throw AssertionError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
                         std::string("expected param to be torch.Tensor, got ") +
                             std::string(py::str(py::type::handle_of(parameter).attr("__name__"))));
  }
  return THPVariable_Unpack(parameter.ptr());
}

std::array<py::object, 4> import_fused_classes() {
  const py::module_ optim = py::module_::import("torch.optim");
  return {optim.attr("Adam"), optim.attr("AdamW"), optim.attr("SGD"), optim.attr("Adagrad")};
}

bool is_torch_fused_class(const py::object& optimizer) {
  static py::gil_safe_call_once_and_store<std::array<py::object, 4>> classes;
  const py::handle type = py::type::handle_of(optimizer);
  return std::ranges::any_of(classes.call_once_and_store_result(import_fused_classes).get_stored(),
                             [&](const py::object& fused_class) { return fused_class.is(type); });
}

// A learning-rate scheduler replaces `step` on the instance by a wrapper of the class's function that
// counts the calls.
bool has_own_step(const py::object& optimizer) {
  const py::dict own = attribute_or(optimizer, names().own_dict, py::dict());
  const py::handle step_name = names().step;
  if (!own.contains(step_name)) {
    return true;
  }
  const py::object step = own[step_name];
  const py::object counts = attribute_or(step, names().wrapped_by_scheduler, py::bool_(false));
  const py::object wrapped = attribute_or(step, names().wrapped, py::none());
  return counts.is(py::bool_(true)) &&
         wrapped.is(py::object(py::type::handle_of(optimizer).attr(step_name)));
}

bool is_fused_in_every_group(const py::object& optimizer) {
  const py::handle fused = names().fused;
  const py::list groups(optimizer.attr(py::handle(names().param_groups)));
  return std::ranges::all_of(groups, [fused](const py::handle& group) {
    return group.contains(fused) && PyObject_IsTrue(py::object(group[fused]).ptr()) == 1;
  });
}

}  // namespace

bool folds_clip(const py::object& optimizer) {
  return is_torch_fused_class(optimizer) && has_own_step(optimizer) &&
         is_fused_in_every_group(optimizer);
}

PythonOptimizer::PythonOptimizer(py::object optimizer, py::args args, py::kwargs kwargs)
    : optimizer_(std::move(optimizer)),
      args_(std::move(args)),
      kwargs_(std::move(kwargs)),
      value_(py::none()) {}

PythonOptimizer::~PythonOptimizer() = default;

const void* PythonOptimizer::identity() const { return optimizer_.ptr(); }

std::vector<at::Tensor> PythonOptimizer::parameters() const {
  const py::gil_scoped_acquire gil;
  // The walk may run the user's Python code, which torch runs under no_grad too.
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> result;
  for (const py::handle& group : optimizer_.attr("param_groups")) {
    const py::list parameters(group[py::str("params")]);  // any iterable; a list is taken as it is
    result.reserve(result.size() + parameters.size());
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parameters.ptr()); ++i) {
      result.push_back(as_tensor(PyList_GET_ITEM(parameters.ptr(), i)));
    }
  }
  return result;
}

void PythonOptimizer::run() { value_ = optimizer_.attr("step")(*args_, **kwargs_); }

at::Tensor PythonOptimizer::step() {
  const py::gil_scoped_acquire gil;
  run();
  return {};  // the value may be of any type: see value()
}

bool PythonOptimizer::claims_amp_support() const {
  const py::gil_scoped_acquire gil;
  return py::cast<bool>(
      py::bool_(attribute_or(optimizer_, names().supports_amp_scaling, py::bool_(false))));
}

bool PythonOptimizer::is_amp_aware() const {
  const py::gil_scoped_acquire gil;
  if (!claims_amp_support()) {
    return false;
  }
  // An older protocol hands the scaler itself to the step. Such an optimizer gets unscaled
  // gradients instead.
  const py::object signature =
      py::module_::import("inspect").attr("signature")(optimizer_.attr("step"));
  return !signature.attr("parameters").contains("grad_scaler");
}

std::optional<at::Tensor> PythonOptimizer::user_grad_scale() const {
  const py::gil_scoped_acquire gil;
  const py::object factor = attribute_or(optimizer_, names().grad_scale, py::none());
  if (factor.is_none()) {
    return std::nullopt;
  }
  return THPVariable_Check(factor.ptr()) ? THPVariable_Unpack(factor.ptr())
                                         : at::full({}, py::cast<double>(factor), at::kFloat);
}

bool PythonOptimizer::folds_clip() const {
  const py::gil_scoped_acquire gil;
  return claims_amp_support() && is_torch_fused_class(optimizer_) && has_own_step(optimizer_) &&
         is_fused_in_every_group(optimizer_);
}

// The protocol of the attributes: torch's own kernels write back what they have divided.
bool PythonOptimizer::writes_true_gradients() const { return true; }

at::Tensor PythonOptimizer::step_amp(const std::optional<at::Tensor>& grad_scale,
                                     const at::Tensor& found_inf) {
  const py::gil_scoped_acquire gil;
  const MomentumGuard momentum(optimizer_);
  const py::object factor = grad_scale ? py::cast(*grad_scale) : py::object(py::none());
  const ScopedAttribute scale_attribute(optimizer_, "grad_scale", factor);
  const ScopedAttribute flag_attribute(optimizer_, "found_inf", py::cast(found_inf));
  run();
  momentum.after_step(found_inf);
  return {};
}

}  // namespace ampscaler::bindings
