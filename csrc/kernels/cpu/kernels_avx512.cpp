// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The loops over gradient elements for AVX-512 (F, BW, DQ, VL).

#include "kernels/cpu/kernels_impl.h"
#include "kernels/cpu/vector_avx512.h"

namespace ampscaler::cpu {

constinit const KernelTable kAvx512Kernels = make_table<Avx512>("avx512");

}  // namespace ampscaler::cpu
