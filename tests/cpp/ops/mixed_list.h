// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// mixed_list(): one list of gradients with every dtype, layout and oddity that the operators must take.

#include <vector>

#include <torch/types.h>

namespace ampscaler {

/// The seventh is a lazy conjugate, which may be read but not written. Equal values on every call.
inline std::vector<at::Tensor> mixed_list() {
  at::manual_seed(1);
  const at::Tensor base = at::randn({6, 8}, at::kDouble);
  return {base.to(at::kHalf),
          base.to(at::kFloat).t(),
          base.to(at::kBFloat16).slice(1, 0, 8, 2),
          at::ones({0}),
          base.clone(),
          at::randn({3, 2}, at::kComplexFloat),
          at::randn({3}, at::kComplexFloat).conj(),
          at::randn({4}, at::kComplexDouble).to(at::kComplexHalf),
          at::zeros({5}),
          at::full({2}, 1e-6, at::kHalf)};
}

}  // namespace ampscaler
