// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// How often each operator comes to each page of the gradients, and how often it writes there: on one
// thread, with every set of loops (AMPSCALER_CPU_ISA), without a clock.

#include <limits>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/gradient_pass.h>
#include <ampscaler/ops.h>

#include "cpp/page_counter.h"

namespace ampscaler {
namespace {

using Histogram = PageCounter::Histogram;

struct Piece {
  std::int64_t elements;
  at::ScalarType dtype;
};

std::size_t bytes_of(Piece piece) {
  // One element of space between neighbours, so that most begin at odd addresses.
  return static_cast<std::size_t>(piece.elements + 1) * c10::elementSize(piece.dtype);
}

std::size_t next_offset(std::size_t offset, Piece piece) {
  const std::size_t alignment = c10::elementSize(piece.dtype);
  return (offset + alignment - 1) / alignment * alignment;
}

std::size_t pages_of(const std::vector<Piece>& pieces) {
  std::size_t end = 0;
  for (const Piece piece : pieces) {
    end = next_offset(end, piece) + bytes_of(piece);
  }
  return end / PageCounter::kPageBytes + 1;
}

// Gradients one behind another in pages that are counted; none of the pages is without a gradient.
class PagedGradients {
 public:
  explicit PagedGradients(const std::vector<Piece>& pieces) : counter_(pages_of(pieces)) {
    at::manual_seed(7);
    std::size_t offset = 0;
    for (const Piece piece : pieces) {
      offset = next_offset(offset, piece);
      at::Tensor gradient =
          at::from_blob(counter_.memory() + offset, {piece.elements}, piece.dtype);
      gradient.copy_(at::randn({piece.elements}));
      gradients_.push_back(gradient);
      offset += bytes_of(piece);
    }
  }

  const std::vector<at::Tensor>& list() const { return gradients_; }

  /// Expects that a call on these values comes `accesses` times to each page, `writes` times to write.
  template <typename Call>
  void expect(int accesses, int writes, const Call& call) {
    std::vector<at::Tensor> values;
    for (const at::Tensor& gradient : gradients_) {
      values.push_back(gradient.clone());
    }
    EXPECT_EQ(counter_.accesses(call), (Histogram{{accesses, counter_.pages()}})) << "accesses";
    restore(values);
    EXPECT_EQ(counter_.writes(call), (Histogram{{writes, counter_.pages()}})) << "writes";
    restore(values);
  }

 private:
  void restore(const std::vector<at::Tensor>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      gradients_[i].copy_(values[i]);
    }
  }

  PageCounter counter_;
  std::vector<at::Tensor> gradients_;
};

std::vector<Piece> mixed_pieces() {
  const std::vector<at::ScalarType> dtypes{at::kFloat, at::kBFloat16, at::kDouble, at::kHalf};
  std::vector<Piece> pieces;
  for (const std::int64_t size : {1, 4097, 7, 8193, 2049, 64, 20000, 33, 16384, 5, 4096, 12289}) {
    pieces.push_back({size, dtypes[pieces.size() % dtypes.size()]});
  }
  return pieces;
}

struct Case {
  const char* name;
  std::vector<Piece> pieces;
};

class PagePasses : public testing::TestWithParam<Case> {
 protected:
  PagePasses() : previous_threads_(at::get_num_threads()) { at::set_num_threads(1); }
  ~PagePasses() override { at::set_num_threads(previous_threads_); }

  PagedGradients gradients_{GetParam().pieces};

 private:
  int previous_threads_;
};

at::Tensor scalar(double value) { return at::scalar_tensor(value, at::kFloat); }

ops::GradStatsOptions limit(double max_norm) {
  ops::GradStatsOptions options;
  options.max_norm = max_norm;
  return options;
}

constexpr double kBinds = 1e-3;
constexpr double kDoesNotBind = 1e9;

TEST_P(PagePasses, ReadOnlyOperatorsReadOnceAndNeverWrite) {
  const at::Tensor scale = scalar(4);
  gradients_.expect(1, 0, [&] { ops::grad_stats(gradients_.list(), scale, limit(kBinds)); });
  gradients_.expect(1, 0, [&] { ops::grad_norms(gradients_.list(), scale); });
  gradients_.expect(1, 0, [&] { ops::find_nonfinite(gradients_.list()); });
  ops::GradStatsOptions infinity_norm;
  infinity_norm.norm_type = std::numeric_limits<double>::infinity();
  gradients_.expect(1, 0, [&] { ops::grad_stats(gradients_.list(), scale, infinity_norm); });
}

// The 16-bit loops sum in float first and go over a block once more if that was out of range.
TEST_P(PagePasses, HugeAndTinyValuesTakeNoSecondPass) {
  for (const bool huge : {true, false}) {
    for (const at::Tensor& gradient : gradients_.list()) {
      const bool is_half = gradient.scalar_type() == at::kHalf;
      gradient.fill_(huge ? (is_half ? 65504.0 : 1e30) : (is_half ? 0x1p-24 : 1e-30));
    }
    gradients_.expect(1, 0, [&] { ops::grad_stats(gradients_.list(), scalar(4)); });
  }
}

TEST_P(PagePasses, InPlaceOperatorsReadAndWriteOnce) {
  const at::Tensor scale = scalar(4);
  gradients_.expect(1, 1, [&] { ops::unscale_with_stats_(gradients_.list(), scale); });
  gradients_.expect(1, 1, [&] { ops::unscale_clamp_(gradients_.list(), scale, 0.01); });
  const at::Tensor found_inf = scalar(0);
  gradients_.expect(1, 1, [&] { ops::scale_grads_(gradients_.list(), scalar(0.5), found_inf); });
  gradients_.expect(1, 1, [&] { ops::unscale_(gradients_.list(), found_inf, scalar(0.5)); });
}

TEST_P(PagePasses, AnInverseOfOneWritesNothing) {
  gradients_.expect(1, 0, [&] { ops::unscale_with_stats_(gradients_.list(), scalar(1)); });
}

TEST_P(PagePasses, ASecondPassWithoutWorkTouchesNothing) {
  gradients_.expect(0, 0, [&] { ops::scale_grads_(gradients_.list(), scalar(1), scalar(0)); });
  gradients_.expect(0, 0, [&] { ops::scale_grads_(gradients_.list(), scalar(0.5), scalar(1)); });
}

std::vector<PassTarget> target(const std::vector<at::Tensor>& gradients, GradientWrite write) {
  PassTarget target;
  target.write = write;
  for (const at::Tensor& gradient : gradients) {
    target.gradients.add(gradient);
  }
  return {target};
}

struct Pipeline {
  const char* name;
  GradientWrite write;
  double scale;
  double max_norm;
  int accesses;
  int writes;
};

// Passes over the gradients, by what is written and whether the clip binds.
const Pipeline kPipelines[] = {
    {"nothing", GradientWrite::kNothing, 4, kBinds, 1, 0},
    {"clip, binding", GradientWrite::kClip, 4, kBinds, 2, 1},
    {"clip, not binding", GradientWrite::kClip, 4, kDoesNotBind, 1, 0},
    {"unscale, binding", GradientWrite::kUnscale, 4, kBinds, 2, 2},
    {"unscale, not binding", GradientWrite::kUnscale, 4, kDoesNotBind, 1, 1},
    {"unscale and clip, binding", GradientWrite::kUnscaleAndClip, 4, kBinds, 2, 1},
    {"unscale and clip, not binding", GradientWrite::kUnscaleAndClip, 4, kDoesNotBind, 2, 1},
    {"unscale and clip, factor 1", GradientWrite::kUnscaleAndClip, 1, kDoesNotBind, 1, 0},
};

TEST_P(PagePasses, PipelinesComeToEachPageOncePerPass) {
  for (const Pipeline& pipeline : kPipelines) {
    SCOPED_TRACE(pipeline.name);
    const auto targets = target(gradients_.list(), pipeline.write);
    const at::Tensor scale = scalar(pipeline.scale);
    gradients_.expect(pipeline.accesses, pipeline.writes,
                      [&] { run_gradient_pass("test", targets, scale, limit(pipeline.max_norm)); });
  }
}

TEST_P(PagePasses, NonFiniteGradientsAreNotClipped) {
  gradients_.list().back().view(-1)[0] = std::numeric_limits<float>::infinity();
  const at::Tensor scale = scalar(4);
  const auto expect = [&](GradientWrite write, int accesses, int writes) {
    const auto targets = target(gradients_.list(), write);
    gradients_.expect(accesses, writes,
                      [&] { run_gradient_pass("test", targets, scale, limit(kBinds)); });
  };
  expect(GradientWrite::kNothing, 1, 0);
  expect(GradientWrite::kClip, 1, 0);
  expect(GradientWrite::kUnscaleAndClip, 1, 0);
  expect(GradientWrite::kUnscale, 1, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Lists, PagePasses,
    testing::Values(Case{"Float", {{50'000, at::kFloat}}}, Case{"Double", {{20'001, at::kDouble}}},
                    Case{"BFloat16", {{70'003, at::kBFloat16}}},
                    Case{"Half", {{70'003, at::kHalf}}}, Case{"Mixed", mixed_pieces()},
                    Case{"ManySmall", std::vector<Piece>(500, Piece{64, at::kFloat})}),
    [](const testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ampscaler
