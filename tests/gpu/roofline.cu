// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// What the GPU's memory allows, without the library: plain reads with 1 to 8 loads of 16 bytes in flight, reads
// of 8 bytes, reading and writing in place; and how long a launch takes by the size of its arguments. Prints
// JSON lines.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
  }
}

__device__ unsigned fold(uint4 value) { return value.x ^ value.y ^ value.z ^ value.w; }
__device__ unsigned fold(uint2 value) { return value.x ^ value.y; }

// `never` is a value that the sum does not have: so the loads are not dropped.
template <typename Access, int kInFlight>
__global__ void __launch_bounds__(512, 2)
    read_kernel(const Access* values, std::int64_t count, unsigned never, unsigned* out) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  unsigned sum = 0;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + (kInFlight - 1) * step < count; i += kInFlight * step) {
    Access loaded[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      loaded[k] = values[i + k * step];
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      sum ^= fold(loaded[k]);
    }
  }
  if (sum == never) {
    *out = sum;
  }
}

template <int kInFlight>
__global__ void __launch_bounds__(512, 2)
    scale_kernel(float4* values, std::int64_t count, float by) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + (kInFlight - 1) * step < count; i += kInFlight * step) {
    float4 loaded[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      loaded[k] = values[i + k * step];
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      loaded[k] = {loaded[k].x * by, loaded[k].y * by, loaded[k].z * by, loaded[k].w * by};
      values[i + k * step] = loaded[k];
    }
  }
}

template <int kBytes>
struct Arguments {
  char bytes[kBytes];
};

template <int kBytes>
__global__ void idle_kernel(const __grid_constant__ Arguments<kBytes> arguments, char* out) {
  if (arguments.bytes[blockIdx.x] != 0) {
    *out = 1;
  }
}

/// Milliseconds of the fastest of `rounds` launches.
template <typename Launch>
float best_time(Launch launch, int rounds = 12) {
  cudaEvent_t begin;
  cudaEvent_t end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  float best = 1e30F;
  for (int round = 0; round < rounds; ++round) {
    check(cudaEventRecord(begin), "record");
    launch();
    check(cudaEventRecord(end), "record");
    check(cudaEventSynchronize(end), "launch");
    float time = 0.0F;
    check(cudaEventElapsedTime(&time, begin, end), "time");
    best = time < best ? time : best;
  }
  return best;
}

struct Memory {
  void* data;
  std::int64_t bytes;
  unsigned* out;
  int multiprocessors;
};

void print(const char* what, int access, int in_flight, int blocks, double gigabytes, float time) {
  std::printf(
      "{\"what\": \"%s\", \"access_bytes\": %d, \"in_flight\": %d, \"blocks_per_multiprocessor\": "
      "%d, "
      "\"gb_per_s\": %.1f}\n",
      what, access, in_flight, blocks, gigabytes / time * 1e3);
  std::fflush(stdout);
}

template <typename Access, int kInFlight>
void read_with(const Memory& memory) {
  for (const int blocks : {1, 2, 4}) {
    const float time = best_time([&] {
      read_kernel<Access, kInFlight><<<blocks * memory.multiprocessors, 512>>>(
          static_cast<const Access*>(memory.data),
          memory.bytes / static_cast<std::int64_t>(sizeof(Access)), 0x5EED'1234U, memory.out);
    });
    print("read", sizeof(Access), kInFlight, blocks, static_cast<double>(memory.bytes) * 1e-9,
          time);
  }
}

template <int kInFlight>
void scale_with(const Memory& memory) {
  for (const int blocks : {1, 2, 4}) {
    const float time = best_time([&] {
      scale_kernel<kInFlight><<<blocks * memory.multiprocessors, 512>>>(
          static_cast<float4*>(memory.data), memory.bytes / 16, 1.0000001F);
    });
    print("read_write", 16, kInFlight, blocks, 2e-9 * static_cast<double>(memory.bytes), time);
  }
}

template <int kBytes>
void launch_with(char* out) {
  constexpr int kLaunches = 2000;
  const Arguments<kBytes> arguments = {};
  idle_kernel<kBytes><<<1, 1>>>(arguments, out);
  check(cudaDeviceSynchronize(), "launch");
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kLaunches; ++i) {
    idle_kernel<kBytes><<<1, 1>>>(arguments, out);
  }
  check(cudaDeviceSynchronize(), "launch");
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  std::printf("{\"what\": \"launch\", \"argument_bytes\": %d, \"us_per_launch\": %.3f}\n", kBytes,
              time.count() / kLaunches);
  std::fflush(stdout);
}

}  // namespace

int main() {
  Memory memory = {nullptr, std::int64_t{4} << 30, nullptr, 0};
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "memory");
  while (memory.bytes > static_cast<std::int64_t>(free / 2)) {
    memory.bytes /= 2;
  }
  check(cudaMalloc(&memory.data, static_cast<std::size_t>(memory.bytes)), "memory");
  check(cudaMalloc(reinterpret_cast<void**>(&memory.out), 4), "memory");
  check(cudaMemset(memory.data, 0x3E, static_cast<std::size_t>(memory.bytes)), "memory");
  check(cudaDeviceGetAttribute(&memory.multiprocessors, cudaDevAttrMultiProcessorCount, 0),
        "device");
  read_with<uint2, 1>(memory);
  read_with<uint4, 1>(memory);
  read_with<uint4, 2>(memory);
  read_with<uint4, 4>(memory);
  read_with<uint4, 8>(memory);
  scale_with<1>(memory);
  scale_with<4>(memory);
  launch_with<64>(reinterpret_cast<char*>(memory.out));
  launch_with<2048>(reinterpret_cast<char*>(memory.out));
  launch_with<8192>(reinterpret_cast<char*>(memory.out));
  launch_with<32704>(reinterpret_cast<char*>(memory.out));
  return 0;
}
