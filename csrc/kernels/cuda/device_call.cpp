// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The glue to the CUDA runtime and torch's streams; see device_call.h. The only file of the backends that
// tests on the CPU replace.

#include "kernels/cuda/device_call.h"

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>

#include "kernels/cuda/stream_slots.h"

namespace ampscaler::cuda {
namespace {

using StreamKey = std::pair<c10::DeviceIndex, c10::StreamId>;
using WorkspaceSlots = StreamSlots<StreamKey, Workspace*>;

// Never destroyed: at the end of the process the driver may be gone first.
WorkspaceSlots& workspace_slots() {
  static auto* const slots = new WorkspaceSlots;
  return *slots;
}

// Torch's streams live as long as the process. One from elsewhere, whose id is its handle, may end, and
// its handle may be given to another one.
bool is_from_elsewhere(const c10::cuda::CUDAStream& stream) {
  return stream.id() != 0 && stream.id() == reinterpret_cast<c10::StreamId>(stream.stream());
}

void write_zeros(Workspace* workspace, cudaStream_t stream) {
  C10_CUDA_CHECK(cudaMemsetAsync(workspace, 0, sizeof(Workspace), stream));
}

// Not by torch's allocator, which may be told, as in the warm-up of a graph, to take memory from a pool that
// will end. Nothing if the GPU is full, though torch may have free memory.
std::optional<Workspace*> make_workspace() {
  // Other threads may capture meanwhile, which otherwise forbids this.
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, sizeof(Workspace));
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // or the next launch would report it
    return std::nullopt;
  }
  C10_CUDA_CHECK(error);
  return static_cast<Workspace*>(memory);
}

// Memory for one call, which goes back to torch's allocator, or to the pool of a graph, in stream order.
void with_new_workspace(const DeviceCall& call,
                        c10::function_ref<cudaError_t(Workspace*)> launches) {
  const at::Tensor memory = call.empty({sizeof(Workspace)}, at::kByte);
  auto* workspace = static_cast<Workspace*>(memory.mutable_data_ptr());
  write_zeros(workspace, call.stream());
  check_launches(launches(workspace));
}

}  // namespace

DeviceCall::DeviceCall(at::Device device)
    : guard_(device), stream_(c10::cuda::getCurrentCUDAStream(device.index()).stream()) {
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount,
                                        static_cast<int>(device.index())));
}

at::Tensor DeviceCall::empty(at::IntArrayRef shape, at::ScalarType dtype) const {
  return at::empty(shape, at::TensorOptions(device()).dtype(dtype));
}

void check_launches(cudaError_t error) { C10_CUDA_CHECK(error); }

void with_workspace(const DeviceCall& call, c10::function_ref<cudaError_t(Workspace*)> launches) {
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(call.device().index());
  const bool captures =
      c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
  const bool keeps = !captures && !is_from_elsewhere(stream);
  const StreamKey key(stream.device_index(), stream.id());
  const auto clean = [&](Workspace* workspace) { write_zeros(workspace, call.stream()); };
  const auto use = [&](Workspace* workspace) { check_launches(launches(workspace)); };
  if (!keeps || !workspace_slots().use(key, &make_workspace, clean, use)) {
    with_new_workspace(call, launches);
  }
}

}  // namespace ampscaler::cuda
