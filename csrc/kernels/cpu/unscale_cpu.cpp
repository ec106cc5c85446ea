// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CPU backend of `unscale_`: one read and one write per element. Small dense gradients take a plain
// loop here, because aten's set-up per tensor costs more than their elements; all others go to aten's
// own kernel, which is vector code for the machine's widest registers and uses torch's threads.

#include <bit>
#include <cstdint>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <torch/library.h>

#include "core/finite.h"
#include "ops/checks.h"
#include "ops/signatures.h"

namespace ampscaler {
namespace {

// The bits of each dtype that tell whether a value is finite, and the size up to which the plain loop
// wins: it is compiled for any x86-64, so 16-bit conversions are slow in it.
template <typename T>
struct Format;
template <>
struct Format<double> {
  using Word = std::uint64_t;
  static constexpr Word kExponent = core::kFloat64Exponent;
  static constexpr std::int64_t kPlainLoopElements = 256;
};
template <>
struct Format<float> {
  using Word = std::uint32_t;
  static constexpr Word kExponent = core::kFloat32Exponent;
  static constexpr std::int64_t kPlainLoopElements = 1024;
};
template <>
struct Format<at::Half> {
  using Word = std::uint16_t;
  static constexpr Word kExponent = core::kFloat16Exponent;
  static constexpr std::int64_t kPlainLoopElements = 32;
};
template <>
struct Format<at::BFloat16> {
  using Word = std::uint16_t;
  static constexpr Word kExponent = core::kBFloat16Exponent;
  static constexpr std::int64_t kPlainLoopElements = 64;
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

template <typename T>
bool unscale_values(T* values, std::int64_t count, float inv_scale) {
  if (inv_scale == 1.0F) {
    return check_and_store(values, count, Keep<T>());
  }
  return check_and_store(values, count, Multiply<T>{static_cast<at::opmath_type<T>>(inv_scale)});
}

// Done and whether all elements were finite; or not done, since the gradient is not for this loop.
struct Attempt {
  bool done;
  bool finite;
};

template <typename T>
Attempt try_plain_loop(const at::Tensor& grad, float inv_scale) {
  const std::int64_t count = grad.numel();
  if (count > Format<T>::kPlainLoopElements || !grad.is_non_overlapping_and_dense()) {
    return {false, true};
  }
  return {true, unscale_values(static_cast<T*>(grad.mutable_data_ptr()), count, inv_scale)};
}

// NOLINTNEXTLINE(readability-function-size): the macro nests deeply, the body is one call
Attempt try_plain_loop_any_dtype(const at::Tensor& grad, float inv_scale) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, grad.scalar_type(), "unscale_",
                                         [&] { return try_plain_loop<scalar_t>(grad, inv_scale); });
}

void unscale_by_aten(const at::Tensor& grad, const at::Tensor& found_inf,
                     const at::Tensor& inv_scale) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::_amp_foreach_non_finite_check_and_unscale_(grad, const_cast<at::Tensor&>(found_inf),
                                                 inv_scale);
}

void unscale_cpu(at::TensorList grads, const at::Tensor& found_inf, const at::Tensor& inv_scale) {
  if (grads.empty()) {
    return;
  }
  ops::check_unscale_scalars(found_inf, inv_scale);
  const float factor = *inv_scale.const_data_ptr<float>();
  for (const at::Tensor& grad : grads) {
    ops::check_unscale_gradient(grad, "cpu");
    const Attempt attempt = try_plain_loop_any_dtype(grad, factor);
    if (!attempt.done) {
      unscale_by_aten(grad, found_inf, inv_scale);
    } else if (!attempt.finite) {
      *found_inf.mutable_data_ptr<float>() = 1.0F;
    }
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, CPU, library) {
  library.impl("unscale_", static_cast<ops::UnscaleFunction*>(&unscale_cpu));
}

}  // namespace ampscaler
