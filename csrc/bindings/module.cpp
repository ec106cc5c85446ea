// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The Python module ampscaler._C: pybind11 over libampscaler.so. Importing it registers
// torch.ops.ampscaler.*, since it loads the library.

#include <ampscaler/ops.h>

#include "bindings/bindings.h"

PYBIND11_MODULE(_C, module) {
  using namespace ampscaler;
  module.doc() = "C++ core of ampscaler; use the names of the package ampscaler instead.";
  ops::ensure_registered();
  bindings::bind_errors();
  bindings::bind_param_groups(module);
  bindings::bind_gradient_pass(module);
  bindings::bind_clip_gradients(module);
  bindings::bind_unscaled_gradients(module);
  bindings::bind_step_result(module);
  bindings::bind_scale_policy(module);
  bindings::bind_amp_scaler(module);
  bindings::bind_functional(module);
  bindings::bind_ops(module);
  module.def(
      "has_unscale_kernel",
      [](const std::string& device_type) {
        return ops::has_unscale_kernel(c10::Device(device_type).type());
      },
      py::arg("device_type"),
      "True if this build has kernels of its own for that device type, such as \"cuda\".");
}
