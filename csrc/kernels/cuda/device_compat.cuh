// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The few words that kernels need beyond C++, for nvcc; on the CPU the SIMT harness of the tests
// defines them instead, so that the same kernel source runs there.

#if defined(__CUDACC__)
#include <type_traits>
// A large parameter that every thread reads in place, without a local copy.
#define SIMT_GRID_CONSTANT(type) const __grid_constant__ type
// One variable per block: SIMT_SHARED(float[32], partials).
#define SIMT_SHARED(type, name) __shared__ std::type_identity_t<type> name
#define SIMT_UNROLL _Pragma("unroll")
#elif !defined(SIMT_HARNESS)
#error "CUDA kernels are compiled by nvcc, or by a C++ compiler after including tests/simt/simt.h"
#endif
