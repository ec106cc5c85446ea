// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// core::GradSums as an int64 tensor, filled and read by torch's operators: for devices without a kernel
// of ours. Nothing waits for the device. The dtype `real` that sums are computed in is float64, or
// float32 where a device has no other.

#include <cstddef>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ampscaler/export.h"
#include "core/grad_stats.h"

namespace ampscaler::ops {

/// The index of a word: word_index(offsetof(core::GradSums, zeros)).
constexpr std::int64_t word_index(std::size_t offset) {
  return static_cast<std::int64_t>(offset / sizeof(std::int64_t));
}

/// How many elements are worked on at once, which bounds temporary memory; squares of so many, each below
/// 4 * 2^2046, stay within the limbs.
inline constexpr std::int64_t kChunkElements = 2'097'152;  // 2^21

/// float64, but float32 on MPS.
at::ScalarType real_type(at::Device device);

/// The words of a dense real tensor.
AMPSCALER_API at::Tensor sums_by_torch(const at::Tensor& values, double norm_type,
                                       at::ScalarType real);

/// The words of several lists, [n, words], as those of one.
at::Tensor merge_sums(const at::Tensor& words);

/// mantissa * 2^exponent, one for each row of words.
struct ScaledReals {
  at::Tensor mantissa;
  at::Tensor exponent;
};

/// core::stored_norm for words of any shape [..., words].
AMPSCALER_API ScaledReals stored_norms(const at::Tensor& words, double norm_type,
                                       at::ScalarType real);

/// The number itself: inf or 0 if it is beyond.
AMPSCALER_API at::Tensor to_real(const ScaledReals& number, at::ScalarType real);

/// core::GradSums::max_abs_bits as a number.
AMPSCALER_API at::Tensor largest_magnitude(const at::Tensor& words, at::ScalarType real);

/// `finite`, unless an element was not: then NaN or inf.
at::Tensor unless_nonfinite(const at::Tensor& words, const at::Tensor& finite);

}  // namespace ampscaler::ops
