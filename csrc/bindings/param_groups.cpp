// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The fast path of the Python drop-in: gradients of a Python optimizer are collected, grouped and
// unscaled behind one call.
//
// Anything out of the ordinary is left to torch's own method: the answer is None and nothing has
// been touched.

#include <optional>
#include <utility>

#include <torch/csrc/autograd/python_variable.h>

#include <ampscaler/gradient_groups.h>

#include "bindings/bindings.h"
#include "bindings/param_group_walk.h"
#include "bindings/pass_target.h"
#include "bindings/types.h"

namespace ampscaler::bindings {
namespace {

// torch raises for these, although we could take them.
bool is_refused_by_torch(const at::Tensor& gradient, bool allow_fp16) {
  const at::ScalarType dtype = gradient.scalar_type();
  return (dtype == at::kHalf && !allow_fp16) || (dtype == at::kBFloat16 && gradient.is_cuda());
}

std::optional<GradientGroups> collect(PyObject* param_groups, bool allow_fp16) {
  GradientGroups groups;
  const bool complete = visit_gradients(param_groups, [&](const at::Tensor& gradient) {
    return !is_refused_by_torch(gradient, allow_fp16) && groups.add_plain(gradient);
  });
  return complete ? std::optional(std::move(groups)) : std::nullopt;
}

bool is_plain_scalar(const py::object& object) {
  if (!THPVariable_CheckExact(object.ptr())) {
    return false;
  }
  const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
  return tensor.scalar_type() == at::kFloat && tensor.numel() == 1 &&
         GradientGroups::is_plain(tensor);
}

std::optional<FoundInfPerDevice> unscale_param_groups(const py::object& param_groups,
                                                      const py::object& inv_scale,
                                                      const py::object& found_inf,
                                                      const py::object& allow_fp16) {
  if (!PyBool_Check(allow_fp16.ptr()) || !is_plain_scalar(inv_scale) ||
      !is_plain_scalar(found_inf)) {
    return std::nullopt;
  }
  const std::optional<GradientGroups> groups =
      collect(param_groups.ptr(), allow_fp16.ptr() == Py_True);
  if (!groups) {
    return std::nullopt;
  }
  const auto unscale = [&] {
    const py::gil_scoped_release no_gil;
    return groups->unscale_(THPVariable_Unpack(inv_scale.ptr()),
                            THPVariable_Unpack(found_inf.ptr()));
  };
  return to_dict(unscale());
}

}  // namespace

void bind_param_groups(py::module_& module) {
  module.def("unscale_param_groups", &unscale_param_groups, py::arg("param_groups"),
             py::arg("inv_scale"), py::arg("found_inf"), py::arg("allow_fp16"),
             "torch.amp.GradScaler._unscale_grads_ in one call, or None (and nothing touched) when "
             "torch must do it.\n\n"
             "Multiplies every gradient in `param_groups` by `inv_scale` in place and returns "
             "{device: flag}, each flag a copy\n"
             "of `found_inf` (0-dim float32) set to 1 where a gradient holds inf or NaN. Does not "
             "wait for the device.");
}

}  // namespace ampscaler::bindings
