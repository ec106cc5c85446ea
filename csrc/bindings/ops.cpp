// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Names of the slots in the operators' results, of which ampscaler.ops makes tuples, and of the CPU's loops.

#include <ampscaler/ops.h>

#include "bindings/bindings.h"

namespace ampscaler::bindings {

void bind_ops(py::module_& module) {
  module.def("stats_names", &ops::stats_names,
             "Names of the slots of the float64 vector `stats`, in their order.");
  module.def("factor_names", &ops::factor_names,
             "Names of the slots of the float32 vector `factors`, in their order.");
  module.def("cpu_kernels", &ops::cpu_kernels,
             "The loops in use on the CPU: \"baseline\", \"avx2\" or \"avx512\". ValueError if "
             "AMPSCALER_CPU_ISA names others than the machine has.");
}

}  // namespace ampscaler::bindings
