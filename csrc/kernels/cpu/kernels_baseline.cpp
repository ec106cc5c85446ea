// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The loops over gradient elements for any machine of the architecture.

#include "kernels/cpu/kernels_impl.h"
#include "kernels/cpu/vector_portable.h"

namespace ampscaler::cpu {

constinit const KernelTable kBaselineKernels = make_table<Portable<8, false>>("baseline");

}  // namespace ampscaler::cpu
