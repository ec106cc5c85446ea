// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Stands in for device_call.cpp: a GPU of three multiprocessors whose memory is the CPU's.

#include <cstring>

#include <ATen/ops/empty.h>

#include "cpp/cuda/launch_record.h"
#include "kernels/cuda/device_call.h"

namespace ampscaler::cuda {

DeviceCall::DeviceCall(at::Device device)
    : guard_(device), stream_(test::current_stream()), multiprocessors_(3) {}

at::Tensor DeviceCall::empty(at::IntArrayRef shape, at::ScalarType dtype) const {
  at::Tensor memory = at::empty(shape, at::TensorOptions(device()).dtype(dtype));
  if (memory.numel() > 0) {
    std::memset(memory.mutable_data_ptr(), 0xFF, memory.nbytes());  // what is never written shows
  }
  return memory;
}

void check_launches(cudaError_t error) {
  TORCH_CHECK(error == cudaSuccess, "launch failed: ", static_cast<int>(error));
}

void with_workspace(const DeviceCall& /*call*/,
                    c10::function_ref<cudaError_t(Workspace*)> launches) {
  check_launches(launches(&test::launch_record().workspace));
}

namespace test {

LaunchRecord& launch_record() {
  static LaunchRecord record;
  return record;
}

cudaStream_t current_stream() {
  static char place = 0;
  return reinterpret_cast<cudaStream_t>(&place);
}

}  // namespace test
}  // namespace ampscaler::cuda
