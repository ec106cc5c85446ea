// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// AMPSCALER_HOST_DEVICE marks functions that nvcc compiles for host and device; for a plain C++
// compiler it is nothing.

#if defined(__CUDACC__)
#define AMPSCALER_HOST_DEVICE __host__ __device__
#else
#define AMPSCALER_HOST_DEVICE
#endif

// Before a loop in such a function that a GPU's compiler would unroll until it runs out of registers.
#if defined(__CUDA_ARCH__)
#define AMPSCALER_SHORT_UNROLL _Pragma("unroll 2")
#else
#define AMPSCALER_SHORT_UNROLL
#endif
