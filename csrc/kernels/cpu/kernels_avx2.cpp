// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The loops over gradient elements for AVX2 with FMA and F16C.

#include "kernels/cpu/kernels_impl.h"
#include "kernels/cpu/vector_avx2.h"

namespace ampscaler::cpu {

constinit const KernelTable kAvx2Kernels = make_table<Avx2>("avx2");

}  // namespace ampscaler::cpu
