// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The algorithms of the AVX units on the portable vector type, so that a machine without AVX tests them
// and one with AVX tests that the units compute the same bits.

#include "kernels/cpu/kernel_table.h"

namespace ampscaler::cpu {

extern const KernelTable kPortable8Kernels;   // as AVX2: 8 floats, fused multiply-add
extern const KernelTable kPortable16Kernels;  // as AVX-512

}  // namespace ampscaler::cpu
