// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Tables that only tests use.

#include "kernels/portable_tables.h"

#include "core/units.h"
#include "kernels/cpu/kernels_impl.h"
#include "kernels/cpu/vector_portable.h"

namespace ampscaler::cpu {

// The AVX units cannot include core/units.h, which has inline functions.
static_assert(kUnitBytes == core::kUnitBytes);

constinit const KernelTable kPortable8Kernels = make_table<Portable<8, true>>("portable8");
constinit const KernelTable kPortable16Kernels = make_table<Portable<16, true>>("portable16");

}  // namespace ampscaler::cpu
