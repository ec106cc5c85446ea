// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// A pass needs no memory that grows with the gradients: everything that it allocates is counted, tensors
// and C++ objects alike, for 1 MiB and for 64 MiB of gradients.

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/gradient_pass.h>
#include <ampscaler/ops.h>

namespace {

std::atomic<std::int64_t> bytes_allocated = 0;

void* counted(void* memory, std::size_t bytes) {
  bytes_allocated += static_cast<std::int64_t>(bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

// They take the place of the standard library's for the whole program, shared libraries included.
void* operator new(std::size_t bytes) { return counted(std::malloc(bytes), bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit), bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}

namespace ampscaler {
namespace {

// torch's allocator of tensors on the CPU, counted.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : wrapped_(c10::GetCPUAllocator()) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    bytes_allocated += static_cast<std::int64_t>(bytes);
    return wrapped_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return wrapped_->raw_deleter(); }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    wrapped_->copy_data(destination, source, bytes);
  }

 private:
  c10::Allocator* wrapped_;
};

void install_counting_allocator() {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/255);
}

template <typename Call>
std::int64_t allocated_by(const Call& call) {
  install_counting_allocator();
  call();  // what torch sets up once per process is no cost of a call
  const std::int64_t before = bytes_allocated;
  call();
  return bytes_allocated - before;
}

constexpr std::int64_t kMebibyte = 1024 * 1024;
// The plan, a range of addresses to look for overlaps, the list itself and its copies.
constexpr std::int64_t kBytesPerTensor = 128;
// Results, sums of threads.
constexpr std::int64_t kBytesPerCall = 16 * 1024;

std::int64_t allocated_by_pass(GradientWrite write, at::ScalarType dtype, std::int64_t bytes,
                               std::int64_t tensors, double max_norm) {
  PassTarget target;
  target.write = write;
  const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  for (std::int64_t i = 0; i < tensors; ++i) {
    target.gradients.add(at::ones({bytes / tensors / element_bytes}, dtype));
  }
  const std::vector<PassTarget> targets{target};
  const at::Tensor scale = at::scalar_tensor(2.0F);
  ops::GradStatsOptions options;
  options.max_norm = max_norm;
  return allocated_by([&] { run_gradient_pass("test", targets, scale, options); });
}

TEST(ExtraMemory, TheCountSeesTensorsAndObjects) {
  const at::Tensor tensor = at::ones({kMebibyte / 4});
  EXPECT_GE(allocated_by([&] { tensor.mul(2); }), kMebibyte);
  EXPECT_GE(allocated_by([] { std::vector<char>(kMebibyte).at(7) = 1; }), kMebibyte);
  // The plan, which is allocated inside our library.
  std::vector<at::Tensor> list(1000, at::Tensor());
  for (at::Tensor& gradient : list) {
    gradient = at::ones({1});
  }
  const at::Tensor scale = at::scalar_tensor(2.0F);
  EXPECT_GE(allocated_by([&] { ops::grad_stats(list, scale); }), 16 * 1000);
}

TEST(ExtraMemory, DoesNotGrowWithTheGradients) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  for (const GradientWrite write : {GradientWrite::kNothing, GradientWrite::kClip,
                                    GradientWrite::kUnscale, GradientWrite::kUnscaleAndClip}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      for (const double max_norm : {1e-6, 1e9}) {
        const auto measure = [&](std::int64_t bytes) {
          return allocated_by_pass(write, dtype, bytes, /*tensors=*/4, max_norm);
        };
        const std::int64_t of_small = measure(kMebibyte);
        EXPECT_EQ(of_small, measure(64 * kMebibyte)) << dtype << ", limit " << max_norm;
        EXPECT_GT(of_small, 0);
        EXPECT_LE(of_small, kBytesPerCall);
      }
    }
  }
  at::set_num_threads(threads);
}

TEST(ExtraMemory, IsSmallPerTensor) {
  for (const GradientWrite write : {GradientWrite::kNothing, GradientWrite::kUnscale}) {
    const std::int64_t bytes = allocated_by_pass(write, at::kFloat, 4 * kMebibyte, 4096, 1e9);
    EXPECT_LE(bytes, 4096 * kBytesPerTensor + kBytesPerCall);
  }
}

}  // namespace
}  // namespace ampscaler
