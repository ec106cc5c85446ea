// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Runs CUDA kernels on the CPU, one thread after the other, in a chosen order of blocks and
// threads. For kernels without barriers, shared memory and warp operations: using one of those does
// not compile here.

#define SIMT_HARNESS
#define SIMT_GRID_CONSTANT(type) const type&

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <vector_functions.h>
#include <vector_types.h>

// What CUDA gives a kernel as built-in variables.
inline dim3 threadIdx;
inline dim3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace simt {

/// The order in which blocks, and threads within a block, run.
enum class Order { kForward, kBackward, kShuffled };

inline std::vector<unsigned int> sequence(unsigned int count, Order order,
                                          std::mt19937& generator) {
  std::vector<unsigned int> result(count);
  std::iota(result.begin(), result.end(), 0U);
  if (order == Order::kBackward) {
    std::ranges::reverse(result);
  } else if (order == Order::kShuffled) {
    std::ranges::shuffle(result, generator);
  }
  return result;
}

/// Same interface as cuda::CudaLauncher; counts launches.
class Launcher {
 public:
  explicit Launcher(Order order = Order::kForward, std::uint32_t seed = 0)
      : order_(order), generator_(seed) {}

  template <typename... Parameters, typename... Arguments>
  void launch(dim3 grid, dim3 block, void (*kernel)(Parameters...), const Arguments&... arguments) {
    ++launches;
    gridDim = grid;
    blockDim = block;
    for (const unsigned int block_index : sequence(grid.x, order_, generator_)) {
      blockIdx = dim3(block_index);
      for (const unsigned int thread_index : sequence(block.x, order_, generator_)) {
        threadIdx = dim3(thread_index);
        kernel(arguments...);
      }
    }
  }

  int launches = 0;

 private:
  Order order_;
  std::mt19937 generator_;
};

}  // namespace simt
