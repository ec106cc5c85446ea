// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Which float16 gradients a scaler unscales and clips.

namespace ampscaler {

/// Who may have float16 gradients, which lose small values when they are unscaled in place.
enum class Fp16Grads {
  kError,        // no one may have them unscaled or clipped, as in torch
  kInPlace,      // everyone may, and they are unscaled in place
  kInOptimizer,  // AmpAware optimizers, which unscale at higher precision; also for clip_grad_norm_
};

/// Whether a clip takes float16 gradients. `scaled`: they are not true ones yet. `by_optimizer`: it is the
/// optimizer that unscales them.
constexpr bool may_clip_fp16(Fp16Grads mode, bool scaled, bool by_optimizer) {
  return !scaled || mode == Fp16Grads::kInPlace ||
         (mode == Fp16Grads::kInOptimizer && by_optimizer);
}

}  // namespace ampscaler
