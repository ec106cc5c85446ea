// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The names that a clip looks up in Python objects, made once. CPython remembers where a class has an
// attribute by the address of its name: a new string of the same letters is looked for in every base class.

#include <Python.h>

namespace ampscaler::bindings {

/// Kept for good, since modules of extensions are not unloaded.
struct Names {
  PyObject* param_groups = PyUnicode_InternFromString("param_groups");
  PyObject* params = PyUnicode_InternFromString("params");
  PyObject* fused = PyUnicode_InternFromString("fused");
  PyObject* step = PyUnicode_InternFromString("step");
  PyObject* stage = PyUnicode_InternFromString("stage");
  PyObject* own_dict = PyUnicode_InternFromString("__dict__");
  PyObject* grad_scale = PyUnicode_InternFromString("grad_scale");
  PyObject* supports_amp_scaling = PyUnicode_InternFromString("_step_supports_amp_scaling");
  PyObject* wrapped_by_scheduler = PyUnicode_InternFromString("_wrapped_by_lr_sched");
  PyObject* wrapped = PyUnicode_InternFromString("__wrapped__");
  /// Also in _optimizers.py, which writes it.
  PyObject* clip_coefficient = PyUnicode_InternFromString("ampscaler_clip_coefficient");
};

/// With the GIL held.
inline const Names& names() {
  static const Names all;
  return all;
}

}  // namespace ampscaler::bindings
