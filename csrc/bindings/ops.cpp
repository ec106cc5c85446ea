// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Names of the slots in the operators' results: ampscaler.ops makes tuples of them.

#include <ampscaler/ops.h>

#include "bindings/bindings.h"

namespace ampscaler::bindings {

void bind_ops(py::module_& module) {
  module.def("stats_names", &ops::stats_names,
             "Names of the slots of the float64 vector `stats`, in their order.");
  module.def("factor_names", &ops::factor_names,
             "Names of the slots of the float32 vector `factors`, in their order.");
}

}  // namespace ampscaler::bindings
