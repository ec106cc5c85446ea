// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Bounds that the loops of the CPU and the kernels of CUDA draw between values: within them squares are summed
// by plain arithmetic, beyond them with care.

namespace ampscaler::core {

/// float16's smallest normal number. Smaller values, but 0, count as underflows in every dtype.
inline constexpr double kSmallestNormalFloat16 = 0x1p-14;

// ---- squares summed in float ----

/// From here to FLT_MAX a sum of at most 64 squares is sound: those that a machine flushes to 0 are below
/// 2^-126 each, together below 2^-30 of it.
inline constexpr float kLowestFloatSum = 0x1p-90F;

// ---- squares of float64, summed in double ----
//
//   0        2^-460                     2^500        DBL_MAX
//   |  x * 2^600  |          x           |  x * 2^-600  |       what is squared, in three sums

/// Between them squares, from 2^-920 to 2^1000, and sums of all that a unit holds are normal numbers.
inline constexpr double kLowestSquared = 0x1p-460;
inline constexpr double kHighestSquared = 0x1p500;

/// What values beyond are multiplied by. That is exact, also for subnormal ones, and takes their squares far
/// from both ends of the range: from 2^-948 to 2^280, and from 2^-200 to 2^848. With 2^512 and 2^-512, squares
/// of the smallest values would be lost, and sums of the largest be infinite.
inline constexpr double kLowFactor = 0x1p600;
inline constexpr double kHighFactor = 0x1p-600;

/// To be added to the exponents of such sums when they are read: the squares of the factors, undone.
inline constexpr int kLowShift = -1200;
inline constexpr int kHighShift = 1200;

}  // namespace ampscaler::core
