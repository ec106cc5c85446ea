// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Runs CUDA kernels on the CPU: every CUDA thread is a fiber, and a seed decides in which order they
// run. Wrong use of barriers and warp operations, and deadlocks, end as simt::Error; with -DSIMT_RACE
// so do data races. Comes before any kernel header.

#define AMPSCALER_SIMT_HARNESS

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <vector_functions.h>
#include <vector_types.h>

#include "simt/intrinsics.h"

// What device_compat.cuh defines for nvcc. A large parameter stays where it is: fibers have small
// stacks.
#define AMPSCALER_GRID_CONSTANT(type) const type&
#define AMPSCALER_UNROLL
#define AMPSCALER_NO_UNROLL
// One variable per block and per place in the source; the static is the place's address.
#define AMPSCALER_SHARED(type, name)                                                         \
  static char simt_place_of_##name;                                                          \
  static_assert(std::is_trivially_default_constructible_v<std::type_identity_t<type>>,       \
                "shared memory is not initialised");                                         \
  auto& name = *static_cast<std::add_pointer_t<std::type_identity_t<type>>>(                 \
      simt::detail::shared_memory(&simt_place_of_##name, sizeof(std::type_identity_t<type>), \
                                  alignof(std::type_identity_t<type>)))

// To g++ these are nothing: a shared variable would silently be one per thread.
#undef __shared__
#define __shared__ _Pragma("GCC error \"use AMPSCALER_SHARED(type, name) of device_compat.cuh\"")
#undef __launch_bounds__
#define __launch_bounds__(...)

// What CUDA gives a kernel as built-in variables.
extern dim3 threadIdx;
extern dim3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
inline constexpr int warpSize = 32;

namespace simt {

struct Options {
  /// 0: threads and blocks in order; 1: in reverse; others: at random, in three ways.
  std::uint64_t seed = 0;
  /// How many blocks run at the same time.
  int resident_blocks = 4;
  std::size_t stack_bytes = 65536;
  /// Whether threads may exit while others of their block go on to a barrier.
  bool allow_exited_at_barrier = false;
};

struct Stats {
  std::int64_t threads = 0;
  std::int64_t switches = 0;
};

/// What is wrong with a kernel or its launch, with block, thread, file and line.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace detail {

struct Argument {
  const void* address;
  std::size_t bytes;
};

struct Grid {
  dim3 grid;
  dim3 block;
  void (*run_thread)(const void* context);
  const void* context;
  const Argument* arguments;  // kernel parameters are constant: no race can be on them
  std::size_t argument_count;
};

Stats run_grid(const Grid& grid, const Options& options);

void* shared_memory(const void* place, std::size_t bytes, std::size_t alignment);

}  // namespace detail

/// Runs the whole grid, or throws Error.
template <typename... Parameters, typename... Arguments>
Stats launch(dim3 grid, dim3 block, const Options& options, void (*kernel)(Parameters...),
             const Arguments&... arguments) {
  const auto call = [&]() __attribute__((no_sanitize("thread"))) { kernel(arguments...); };
  const std::array<detail::Argument, sizeof...(Arguments)> places{
      detail::Argument{&arguments, sizeof(arguments)}...};
  const auto run_thread = [](const void* context) __attribute__((no_sanitize("thread"))) {
    (*static_cast<decltype(&call)>(context))();
  };
  return detail::run_grid({grid, block, run_thread, &call, places.data(), places.size()}, options);
}

/// Same interface as cuda::CudaLauncher; remembers what it launched.
class Launcher {
 public:
  struct Shape {
    dim3 grid;
    dim3 block;
  };

  explicit Launcher(const Options& launch_options = {}) : options(launch_options) {}

  template <typename... Parameters, typename... Arguments>
  void launch(dim3 grid, dim3 block, void (*kernel)(Parameters...), const Arguments&... arguments) {
    ++launches;
    shapes.push_back({grid, block});
    const Stats stats = simt::launch(grid, block, options, kernel, arguments...);
    total.threads += stats.threads;
    total.switches += stats.switches;
  }

  Options options;
  int launches = 0;
  std::vector<Shape> shapes;
  Stats total;
};

}  // namespace simt
