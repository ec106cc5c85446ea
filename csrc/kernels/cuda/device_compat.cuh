// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The few words that kernels need beyond C++, for nvcc; on the CPU the SIMT harness of the tests
// defines them instead, so that the same kernel source runs there.

#if defined(__CUDACC__)
#include <type_traits>
// A large parameter that every thread reads in place, without a local copy.
#define AMPSCALER_GRID_CONSTANT(type) const __grid_constant__ type
// A variable that the threads of a block share, in a function; std::type_identity_t allows arrays.
#define AMPSCALER_SHARED(type, name) __shared__ std::type_identity_t<type> name
// Before a loop with a constant number of rounds over arrays that are to be registers.
#define AMPSCALER_UNROLL _Pragma("unroll")
// Before a loop that is rarely run, to keep it from taking registers of the others.
#define AMPSCALER_NO_UNROLL _Pragma("unroll 1")
#elif defined(AMPSCALER_SIMT_HARNESS)
// tests/simt/simt.h has defined them.
#else
#error "CUDA kernels are compiled by nvcc, or by a C++ compiler after including tests/simt/simt.h"
#endif
