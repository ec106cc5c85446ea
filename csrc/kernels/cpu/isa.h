// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The choice of a kernel table at run time.

#include <string>
#include <vector>

#include "kernels/cpu/kernel_table.h"

namespace ampscaler::cpu {

/// The tables that this machine can run, the widest last.
std::vector<const KernelTable*> available_kernels();

/// The table named by `requested`, or the widest one if it is empty. c10-free: throws
/// std::invalid_argument that names AMPSCALER_CPU_ISA, what was asked for and what this machine has.
const KernelTable& choose_kernels(const std::string& requested);

/// The table in use: chosen once per process, by AMPSCALER_CPU_ISA=baseline|avx2|avx512 or by what the
/// machine can do.
const KernelTable& kernels();

}  // namespace ampscaler::cpu
