// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The argument fp16_grads of both Python scalers.

#include <string>

#include <c10/util/Exception.h>

#include <ampscaler/fp16_grads.h>

namespace ampscaler::bindings {

inline Fp16Grads parse_fp16_grads(const std::string& name) {
  if (name == "error") {
    return Fp16Grads::kError;
  }
  if (name == "in_place") {
    return Fp16Grads::kInPlace;
  }
  TORCH_CHECK_VALUE(name == "in_optimizer",
                    "AmpScaler: fp16_grads: expected 'error', 'in_place' or 'in_optimizer', got '",
                    name, "'");
  return Fp16Grads::kInOptimizer;
}

}  // namespace ampscaler::bindings
