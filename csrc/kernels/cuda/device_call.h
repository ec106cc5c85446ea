// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Where the launches of a call go: GPU, current stream, and memory for sums that no other call uses
// meanwhile. All that the backends need of the CUDA runtime besides the launches themselves.

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/FunctionRef.h>
#include <cuda_runtime_api.h>

#include "kernels/cuda/pass_arguments.h"

namespace ampscaler::cuda {

/// While it lives, `device` is the current one.
class DeviceCall {
 public:
  explicit DeviceCall(at::Device device);

  at::Device device() const { return guard_.current_device(); }
  cudaStream_t stream() const { return stream_; }
  int multiprocessors() const { return multiprocessors_; }

  /// Memory of the device, not initialised.
  at::Tensor empty(at::IntArrayRef shape, at::ScalarType dtype) const;

 private:
  c10::DeviceGuard guard_;
  cudaStream_t stream_ = nullptr;
  int multiprocessors_ = 0;
};

/// Throws torch's exception for what a launch function returned, unless it is success.
void check_launches(cudaError_t error);

/// Calls `launches` with a workspace of zeros, which the last of its launches must leave behind too, and
/// checks what it returns. Calls on one stream are let in one by one; after an error the next one
/// finds zeros all the same. Under capture the workspace belongs to the graph.
void with_workspace(const DeviceCall& call, c10::function_ref<cudaError_t(Workspace*)> launches);

}  // namespace ampscaler::cuda
