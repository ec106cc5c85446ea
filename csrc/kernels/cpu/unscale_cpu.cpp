// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CPU backend of `unscale_`: one read and one write per element. Small dense gradients take a plain
// loop, everything else torch's TensorIterator, which splits large tensors over torch's threads and
// walks any strides.

#include <atomic>
#include <bit>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <torch/library.h>

#include "core/finite.h"
#include "ops/checks.h"
#include "ops/signatures.h"

namespace ampscaler {
namespace {

// torch starts no second thread below this number of elements, so a TensorIterator would only add
// its set-up (about 1 us).
constexpr std::int64_t kPlainLoopElements = at::internal::GRAIN_SIZE;

// The bits of each dtype that tell whether a value is finite.
template <typename T>
struct Format;
template <>
struct Format<double> {
  using Word = std::uint64_t;
  static constexpr Word kExponent = core::kFloat64Exponent;
};
template <>
struct Format<float> {
  using Word = std::uint32_t;
  static constexpr Word kExponent = core::kFloat32Exponent;
};
template <>
struct Format<at::Half> {
  using Word = std::uint16_t;
  static constexpr Word kExponent = core::kFloat16Exponent;
};
template <>
struct Format<at::BFloat16> {
  using Word = std::uint16_t;
  static constexpr Word kExponent = core::kBFloat16Exponent;
};

// Products are formed in the computation type. An inverse scale of 1 stores values as they are;
// 16-bit NaNs are quieted by the way through float, as in aten.
template <typename T>
struct Multiply {
  at::opmath_type<T> inv_scale;
  T operator()(T value) const {
    return static_cast<T>(static_cast<at::opmath_type<T>>(value) * inv_scale);
  }
};

template <typename T>
struct Keep {
  T operator()(T value) const { return static_cast<T>(static_cast<at::opmath_type<T>>(value)); }
};

// Applies `store` to `count` elements and returns true if all of them were finite before. Without
// branches, so that it is compiled to vector code.
template <typename T, typename Store>
bool check_and_store(T* values, std::int64_t count, Store store) {
  using Word = Format<T>::Word;
  Word nonfinite = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = values[i];
    nonfinite |=
        static_cast<Word>(!core::is_finite_bits(std::bit_cast<Word>(value), Format<T>::kExponent));
    values[i] = store(value);
  }
  return nonfinite == 0;
}

template <typename T, typename Store>
bool check_and_store_strided(char* data, std::int64_t stride, std::int64_t count, Store store) {
  bool finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    finite &= check_and_store(reinterpret_cast<T*>(data + i * stride), 1, store);
  }
  return finite;
}

template <typename T>
bool unscale_row(char* data, std::int64_t stride, std::int64_t count, float inv_scale) {
  const bool contiguous = stride == static_cast<std::int64_t>(sizeof(T));
  const auto run = [&](auto store) {
    return contiguous ? check_and_store(reinterpret_cast<T*>(data), count, store)
                      : check_and_store_strided<T>(data, stride, count, store);
  };
  return inv_scale == 1.0F ? run(Keep<T>())
                           : run(Multiply<T>{static_cast<at::opmath_type<T>>(inv_scale)});
}

// TensorIterator hands out blocks of `rows` rows, `strides[0]` bytes from element to element and
// `strides[1]` from row to row.
template <typename T>
bool unscale_by_iterator(const at::Tensor& grad, float inv_scale) {
  auto iterator = at::TensorIterator::borrowing_nullary_op(grad);
  std::atomic<bool> finite{true};
  iterator.for_each(
      [&](char** data, const std::int64_t* strides, std::int64_t count, std::int64_t rows) {
        bool block_finite = true;
        for (std::int64_t row = 0; row < rows; ++row) {
          block_finite &= unscale_row<T>(data[0] + row * strides[1], strides[0], count, inv_scale);
        }
        if (!block_finite) {
          finite.store(false, std::memory_order_relaxed);
        }
      });
  return finite.load(std::memory_order_relaxed);
}

template <typename T>
bool unscale_gradient(const at::Tensor& grad, float inv_scale) {
  if (grad.numel() <= kPlainLoopElements && grad.is_non_overlapping_and_dense()) {
    return unscale_row<T>(static_cast<char*>(grad.mutable_data_ptr()), sizeof(T), grad.numel(),
                          inv_scale);
  }
  return unscale_by_iterator<T>(grad, inv_scale);
}

// NOLINTNEXTLINE(readability-function-size): the macro nests deeply, the body is one call
bool unscale_any_dtype(const at::Tensor& grad, float inv_scale) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, grad.scalar_type(), "unscale_",
      [&] { return unscale_gradient<scalar_t>(grad, inv_scale); });
}

void unscale_cpu(at::TensorList grads, const at::Tensor& found_inf, const at::Tensor& inv_scale) {
  if (grads.empty()) {
    return;
  }
  ops::check_unscale_scalars(found_inf, inv_scale);
  const float factor = *inv_scale.const_data_ptr<float>();
  for (const at::Tensor& grad : grads) {
    ops::check_unscale_gradient(grad, "cpu");
    if (!unscale_any_dtype(grad, factor)) {
      *found_inf.mutable_data_ptr<float>() = 1.0F;
    }
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, CPU, library) {
  library.impl("unscale_", static_cast<ops::UnscaleFunction*>(&unscale_cpu));
}

}  // namespace ampscaler
