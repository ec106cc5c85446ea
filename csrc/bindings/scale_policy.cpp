// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// ScalePolicy for Python, and the update of the drop-in under one.

#include <vector>

#include <pybind11/typing.h>
#include <torch/csrc/autograd/python_variable.h>

#include <ampscaler/gradient_groups.h>
#include <ampscaler/ops.h>
#include <ampscaler/scale_policy.h>

#include "bindings/bindings.h"
#include "bindings/types.h"

namespace ampscaler::bindings {
namespace {

using Limit = std::optional<double>;

ScalePolicy make_policy(const std::optional<Real>& min_scale, const std::optional<Real>& max_scale,
                        bool fix_upstream) {
  return ScalePolicy().min_scale(min_scale).max_scale(max_scale).fix_upstream(fix_upstream);
}

std::string describe(const ScalePolicy& self) {
  const auto text = [](const Limit& limit) {
    return limit ? std::string(py::repr(py::float_(*limit))) : std::string("None");
  };
  return "ScalePolicy(min_scale=" + text(self.min_scale()) +
         ", max_scale=" + text(self.max_scale()) +
         ", fix_upstream=" + (self.fix_upstream() ? "True)" : "False)");
}

using Fields = py::typing::Tuple<Limit, Limit, bool>;

Fields fields_of(const ScalePolicy& self) {
  return py::make_tuple(self.min_scale(), self.max_scale(), self.fix_upstream());
}

// Pickles from before fix_upstream end with max_scale.
ScalePolicy from_fields(const Fields& fields) {
  const bool fix_upstream = fields.size() > 2 && py::cast<bool>(fields[2]);
  return make_policy(py::cast<std::optional<Real>>(fields[0]),
                     py::cast<std::optional<Real>>(fields[1]), fix_upstream);
}

// Python's own way with pickle protocols below 2 would end the process, on an object without its base.
py::typing::Tuple<py::object, py::ellipsis> reduce(const py::object& self, int /*protocol*/) {
  const py::object make = py::module_::import("copyreg").attr("__newobj__");
  return py::make_tuple(make, py::make_tuple(py::type::of(self)), self.attr("__getstate__")());
}

py::object clamp(const ScalePolicy& self, const py::object& scale) {
  if (THPVariable_Check(scale.ptr())) {
    return py::cast(self.clamp(THPVariable_Unpack(scale.ptr())));
  }
  const double value = PyFloat_AsDouble(scale.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw py::type_error(c10::str("ScalePolicy: scale: expected a number or a tensor, got ",
                                  Py_TYPE(scale.ptr())->tp_name));
  }
  return py::cast(self.clamp(value));
}

py::object is_equal(const ScalePolicy& self, const py::object& other) {
  if (!py::isinstance<ScalePolicy>(other)) {
    return py::reinterpret_borrow<py::object>(Py_NotImplemented);
  }
  return py::bool_(self == py::cast<const ScalePolicy&>(other));
}

void advance_scale_(const at::Tensor& scale, const at::Tensor& growth_tracker,
                    const std::vector<at::Tensor>& found_infs, double growth_factor,
                    double backoff_factor, std::int64_t growth_interval,
                    const ScalePolicy& policy) {
  std::vector<DeviceFoundInf> found_inf_per_device;
  found_inf_per_device.reserve(found_infs.size());
  for (const at::Tensor& found_inf : found_infs) {
    found_inf_per_device.push_back({found_inf.device(), found_inf});
  }
  ops::advance_scale_(scale, growth_tracker,
                      combine_found_inf(found_inf_per_device, scale.device()), growth_factor,
                      backoff_factor, growth_interval, policy);
}

}  // namespace

void bind_scale_policy(py::module_& module) {
  py::class_<ScalePolicy>(
      module, "ScalePolicy",
      "What a scaler does beyond torch's: the scale stays within [min_scale, max_scale], and with "
      "fix_upstream what is wrong in torch's scaler is mended.\n\n"
      "Each limit is None (no limit) or in [2**-126, 2**126], else ValueError, rounded to float32. "
      "Immutable.")
      .def(py::init(&make_policy), py::kw_only(), py::arg("min_scale") = py::none(),
           py::arg("max_scale") = py::none(), py::arg("fix_upstream").noconvert() = false)
      .def_property_readonly(
          "min_scale", [](const ScalePolicy& self) { return self.min_scale(); },
          "The scale does not fall below this; None: no floor.")
      .def_property_readonly(
          "max_scale", [](const ScalePolicy& self) { return self.max_scale(); },
          "The scale does not grow beyond this; None: no cap.")
      .def_property_readonly(
          "fix_upstream", [](const ScalePolicy& self) { return self.fix_upstream(); },
          "GradScaler mends what is wrong in torch's own scaler. (AmpScaler does so always, but "
          "for some cases that docs/gradients.md names.)")
      .def("clamp", &clamp, py::arg("scale"),
           "The nearest scale within the limits: a float, or a new float32 tensor for a tensor. "
           "ValueError "
           "for a float NaN; does not wait.")
      .def("__eq__", &is_equal, py::arg("other"))
      .def("__hash__", [](const ScalePolicy& self) { return py::hash(fields_of(self)); })
      .def("__repr__", &describe)
      .def(py::pickle(&fields_of, &from_fields))
      .def("__reduce_ex__", &reduce, py::arg("protocol"));
  module.def(
      "advance_scale_", &advance_scale_, py::arg("scale"), py::arg("growth_tracker"),
      py::arg("found_infs"), py::arg("growth_factor"), py::arg("backoff_factor"),
      py::arg("growth_interval"), py::arg("policy"), py::call_guard<py::gil_scoped_release>(),
      "torch.ops.ampscaler.advance_scale_ with the numbers by name and a list of flags, of which "
      "one suffices. Does not wait.");
}

}  // namespace ampscaler::bindings
