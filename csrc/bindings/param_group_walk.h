// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The walk over the gradients of a Python optimizer without a Python object per gradient.

#include <algorithm>

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <ampscaler/gradient_prefetch.h>

#include "bindings/names.h"

namespace ampscaler::bindings {

/// A Python subclass wants to see torch's operator, even if its tensor looks plain from C++.
inline bool is_python_subclass(const at::Tensor& tensor) {
  PyObject* object = tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
  return object != nullptr && !THPVariable_CheckExact(object);
}

/// Calls `visit` with the gradient of one parameter, if it has one; false if torch must see the call.
template <typename Visit>
bool visit_parameter(PyObject* parameter, Visit& visit) {
  if (!THPVariable_CheckExact(parameter)) {
    return false;
  }
  const auto* meta = autograd_meta(*THPVariable_Unpack(parameter).unsafeGetTensorImpl());
  if (meta == nullptr) {
    return true;
  }
  if (meta->grad_fn_) {
    return false;  // reading the .grad of such a tensor warns, and torch reads it more often than we do
  }
  const at::Tensor& gradient = meta->grad_;
  return !gradient.defined() || (!is_python_subclass(gradient) && visit(gradient));
}

/// Of a group of parameters that begins at `begin`.
inline void prefetch_parameters(PyObject* parameters, Py_ssize_t begin) {
  const Py_ssize_t left = PyList_GET_SIZE(parameters) - begin;
  const auto count = std::min(static_cast<Py_ssize_t>(kPrefetchGroup), left);
  PrefetchGroup group = {};
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* parameter = PyList_GET_ITEM(parameters, begin + i);
    if (THPVariable_CheckExact(parameter)) {
      group[static_cast<std::size_t>(i)] = THPVariable_Unpack(parameter).unsafeGetTensorImpl();
    }
  }
  prefetch_gradients(group);
}

template <typename Visit>
bool visit_group(PyObject* group, Visit& visit) {
  if (!PyDict_CheckExact(group)) {
    return false;
  }
  PyObject* parameters = PyDict_GetItemWithError(group, names().params);
  if (parameters == nullptr || !PyList_CheckExact(parameters)) {
    PyErr_Clear();
    return false;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parameters); ++i) {
    if (i % static_cast<Py_ssize_t>(kPrefetchGroup) == 0) {
      prefetch_parameters(parameters, i);
    }
    if (!visit_parameter(PyList_GET_ITEM(parameters, i), visit)) {
      return false;
    }
  }
  return true;
}

/// So many parameters there are, if nothing is out of the ordinary; else some number.
inline std::size_t parameter_count(PyObject* param_groups) {
  Py_ssize_t count = 0;
  for (Py_ssize_t i = 0; PyList_CheckExact(param_groups) && i < PyList_GET_SIZE(param_groups);
       ++i) {
    PyObject* group = PyList_GET_ITEM(param_groups, i);
    PyObject* parameters =
        PyDict_CheckExact(group) ? PyDict_GetItem(group, names().params) : nullptr;
    count +=
        parameters != nullptr && PyList_CheckExact(parameters) ? PyList_GET_SIZE(parameters) : 0;
  }
  return static_cast<std::size_t>(count);
}

/// What an active function mode, as torch.set_default_device() leaves one, means for a walk.
enum class FunctionModes {
  kSeeEverything,  // it shall see the operators that torch's own code would call
  kIgnored,        // the call is ours, and torch has none that it could wait for
};

/// Calls `bool visit(const at::Tensor& gradient)` for each gradient in `param_groups`. False, as soon as it
/// turns out, if torch's own code must do the work: for subclasses, active function modes, and anything
/// but plain lists and dicts (walking a generator would use it up before torch could).
template <typename Visit>
bool visit_gradients(PyObject* param_groups, Visit visit,
                     FunctionModes modes = FunctionModes::kSeeEverything) {
  const bool seen =
      modes == FunctionModes::kSeeEverything && at::impl::torch_function_mode_enabled();
  if (seen || !PyList_CheckExact(param_groups)) {
    return false;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(param_groups); ++i) {
    if (!visit_group(PyList_GET_ITEM(param_groups, i), visit)) {
      return false;
    }
  }
  return true;
}

}  // namespace ampscaler::bindings
