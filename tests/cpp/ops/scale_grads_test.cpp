// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// `scale_grads_` on the CPU: the second pass of clipping. Products against torch's, and that a step that
// does not clip touches no gradient.

#include <gtest/gtest.h>

#include "cpp/guarded_memory.h"
#include "cpp/ops/gradients.h"

namespace ampscaler {
namespace {

class ScaleGradsDtype : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Cpu, ScaleGradsDtype,
                         testing::Values(at::kHalf, at::kBFloat16, at::kFloat, at::kDouble),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

void expect_torchs_products(const Gradients& grads, float factor) {
  const Gradients ours = clones(grads);
  const Gradients theirs = clones(grads);
  ops::scale_grads_(ours, at::full({}, factor), scalar(0.0));
  at::Tensor flag = at::zeros({});
  at::_amp_foreach_non_finite_check_and_unscale_(theirs, flag, at::full({}, factor));
  for (std::size_t i = 0; i < grads.size(); ++i) {
    EXPECT_TRUE(same_bits(ours[i], theirs[i])) << "gradient " << i << ", factor " << factor;
    EXPECT_EQ(ours[i]._version(), 1);
  }
}

TEST_P(ScaleGradsDtype, C2OneRoundingPerElement) {
  at::manual_seed(51);
  for (const std::int64_t size : {0, 1, 7, 33, 4097, 30000}) {
    const at::Tensor grad = at::randn({size}).mul_(100).to(GetParam());
    for (const float factor : {0.5F, 0.3F, 1e-6F, -2.5F, 0.0F}) {
      expect_torchs_products({grad}, factor);
    }
  }
}

TEST(ScaleGrads, ListsOfAllKinds) {
  Gradients grads = mixed_gradients(52);
  grads.push_back(at::randn({1 << 20}));
  grads.push_back(at::randn({6, 5, 4, 3}).contiguous(at::MemoryFormat::ChannelsLast));
  grads.push_back(at::empty({0}));
  for (const int threads : {1, 2, 3}) {
    const ThreadsGuard guard(threads);
    expect_torchs_products(grads, 0.37F);
  }
}

TEST(ScaleGrads, StridedAndComplexGradients) {
  const at::Tensor base = at::ones({4, 6});
  const at::Tensor complex = at::ones({3}, at::kComplexFloat);
  ops::scale_grads_({base.slice(1, 0, 6, 2), complex}, scalar(0.5), scalar(0.0));
  EXPECT_EQ(base.sum().item<float>(), 18.0F);
  EXPECT_TRUE(same_bits(base.slice(1, 1, 6, 2), at::ones({4, 3})));
  EXPECT_EQ(at::view_as_real(complex).sum().item<float>(), 1.5F);
}

TEST(ScaleGrads, NothingIsReadOrWrittenUnlessItMustBe) {
  const auto memory = std::make_unique<GuardedMemory>(1 << 16);
  const at::Tensor grad = memory->tensor({1 << 14}, at::kFloat).fill_(2.0);
  memory->watch();
  ops::scale_grads_({grad}, scalar(1.0), scalar(0.0));
  for (const double found_inf : {1.0, 2.0, -1.0, kNan}) {
    ops::scale_grads_({grad}, scalar(0.5), scalar(found_inf));
  }
  EXPECT_EQ(memory->accesses(), 0);
  EXPECT_EQ(grad._version(), 6);  // fill_ and five calls: on a device the host would not know
  ops::scale_grads_({grad}, scalar(0.5), scalar(0.0));
  memory->unwatch();
  EXPECT_GT(memory->writes(), 0);
  EXPECT_EQ(grad.sum().item<float>(), static_cast<float>(1 << 14));
}

TEST(ScaleGrads, TheWholeListUsesEveryThread) {
  const ThreadsGuard guard(2);
  const auto memory = std::make_unique<GuardedMemory>(1 << 22);
  Gradients grads;
  const at::Tensor all = memory->tensor({64, 1 << 14}, at::kFloat).fill_(2.0);
  for (std::int64_t i = 0; i < 64; ++i) {
    grads.push_back(all[i]);
  }
  ops::scale_grads_(grads, scalar(0.5), scalar(0.0));  // the pool exists
  const auto there_and_back = [&] {
    ops::scale_grads_(grads, scalar(2.0), scalar(0.0));
    ops::scale_grads_(grads, scalar(0.5), scalar(0.0));
  };
  EXPECT_EQ(threads_seen(*memory, 2, there_and_back), 2);
  EXPECT_EQ(all.sum().item<float>(), 1 << 20);
}

TEST(ScaleGrads, AnErrorLeavesEverything) {
  const at::Tensor grad = at::ones({10});
  const std::int64_t version = grad._version();
  for (const Gradients& grads : {Gradients{grad, grad.slice(0, 5)}, Gradients{grad, at::Tensor()},
                                 Gradients{grad, at::ones({1}).expand({3})}}) {
    EXPECT_ANY_THROW(ops::scale_grads_(grads, scalar(0.5), scalar(0.0)));
  }
  EXPECT_TRUE(same_bits(grad, at::ones({10})));
  EXPECT_EQ(grad._version(), version);
}

}  // namespace
}  // namespace ampscaler
