// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The name of the loops in use, for users of the library: isa.h is torch-free and not installed.

#include <string>

#include "ampscaler/ops.h"
#include "kernels/cpu/isa.h"

namespace ampscaler::ops {

std::string cpu_kernels() { return cpu::kernels().name; }

}  // namespace ampscaler::ops
