// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Sparse gradients as the dense tensors of their values, so that every operator is written for dense
// ones only.

#include <vector>

#include <ATen/core/Tensor.h>

namespace ampscaler::ops {

bool has_sparse(at::TensorList grads);

/// Dense gradients as they are, of sparse ones the values of a coalesced copy.
std::vector<at::Tensor> values_to_read(at::TensorList grads);

/// The same to be written: a sparse gradient that is not coalesced becomes so, in place. Otherwise
/// clamping and statistics would be of summands, and what backward leaves behind for an embedding may be
/// one value that stands for all. Bumps the versions of sparse gradients; those of dense ones are for who
/// writes them.
std::vector<at::Tensor> values_to_write(at::TensorList grads);

}  // namespace ampscaler::ops
