// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// `unscale_` on the CPU against torch's own operator: bits of gradients and flag, version counters,
// error texts.

#include <limits>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ampscaler/ops.h>

#include "cpp/error_text.h"

namespace ampscaler {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Bits, so that -0 differs from 0. The payload of a NaN is not compared: aten's own vector and
// scalar loops differ in it.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bits = [](const at::Tensor& tensor) {
    return tensor.nan_to_num(0, kInfinity, -kInfinity).contiguous().flatten().view(at::kByte);
  };
  return at::equal(a.isnan(), b.isnan()) && at::equal(bits(a), bits(b));
}

// Runs both operators on copies of the gradients.
void expect_same_as_aten(const std::vector<at::Tensor>& grads, float inv_scale) {
  std::vector<at::Tensor> ours;
  std::vector<at::Tensor> theirs;
  for (const at::Tensor& grad : grads) {
    ours.push_back(grad.clone());  // preserves dense strides
    theirs.push_back(grad.clone());
  }
  at::Tensor our_flag = at::zeros({});
  at::Tensor their_flag = at::zeros({});
  ops::unscale_(ours, our_flag, at::scalar_tensor(inv_scale));
  at::_amp_foreach_non_finite_check_and_unscale_(theirs, their_flag, at::scalar_tensor(inv_scale));
  EXPECT_TRUE(same_bits(our_flag, their_flag))
      << our_flag.item<float>() << " and " << their_flag.item<float>();
  for (std::size_t i = 0; i < grads.size(); ++i) {
    EXPECT_TRUE(same_bits(ours[i], theirs[i]))
        << "gradient " << i << ", " << grads[i].dtype() << ", inv_scale " << inv_scale;
  }
}

class UnscaleDtype : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Cpu, UnscaleDtype,
                         testing::Values(at::kHalf, at::kBFloat16, at::kFloat, at::kDouble),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

TEST_P(UnscaleDtype, MatchesAtenForEverySizeAroundVectorWidths) {
  at::manual_seed(11);
  for (const std::int64_t size :
       {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1000, 32768, 32769, 100001}) {
    for (const float inv_scale :
         {1.0F, 0.5F, 1.0F / 65536.0F, 1.0F / 3000.0F, 4.0F, 0.0F, -0.25F, kInfinity, kNan}) {
      expect_same_as_aten({at::randn({size}).mul_(1000).to(GetParam())}, inv_scale);
    }
  }
}

TEST_P(UnscaleDtype, FindsANonfiniteElementAtAnyPosition) {
  for (const std::int64_t size : {1, 8, 67, 40001}) {
    for (const std::int64_t position : {std::int64_t{0}, size / 2, size - 1}) {
      for (const float bad : {kInfinity, -kInfinity, kNan}) {
        const at::Tensor grad = at::ones({size}, GetParam());
        grad[position] = bad;
        at::Tensor flag = at::zeros({});
        ops::unscale_({grad.clone()}, flag, at::scalar_tensor(0.5F));
        EXPECT_EQ(flag.item<float>(), 1.0F) << size << " " << position << " " << bad;
        expect_same_as_aten({grad}, 0.5F);
      }
    }
  }
}

TEST_P(UnscaleDtype, MatchesAtenAtTheLimitsOfTheDtype) {
  const auto options = at::dtype(GetParam());
  const double largest = GetParam() == at::kHalf     ? 65504.0
                         : GetParam() == at::kDouble ? 1e308
                                                     : 3.3e38;
  const at::Tensor grad =
      at::tensor({largest, -largest, 1e-8, 6e-8, 1e-40, 5e-324, -0.0, 0.0}, at::kDouble)
          .to(options);
  for (const float inv_scale : {1.0F, 0.5F, 4.0F, 1e-30F}) {
    expect_same_as_aten({grad}, inv_scale);
  }
}

TEST_P(UnscaleDtype, MatchesAtenForEveryLayout) {
  at::manual_seed(12);
  const at::Tensor base = at::randn({6, 10, 8}).to(GetParam());
  const auto views = [](const at::Tensor& tensor) {
    return std::vector<at::Tensor>{tensor.transpose(0, 2),
                                   tensor.slice(1, 0, 10, 3),
                                   tensor.select(2, 3),
                                   tensor[2][1][0],
                                   tensor.slice(0, 1, 1),
                                   tensor.permute({2, 0, 1}),
                                   tensor.as_strided({4, 3}, {20, 5})};
  };
  for (std::size_t i = 0; i < views(base).size(); ++i) {
    const at::Tensor ours = base.clone();
    const at::Tensor theirs = base.clone();
    at::Tensor flag = at::zeros({});
    ops::unscale_({views(ours)[i]}, flag, at::scalar_tensor(0.3F));
    at::_amp_foreach_non_finite_check_and_unscale_({views(theirs)[i]}, flag,
                                                   at::scalar_tensor(0.3F));
    EXPECT_TRUE(same_bits(ours, theirs)) << "view " << i;  // gaps untouched, too
  }
}

TEST_P(UnscaleDtype, OnlyElementsOfAViewAreJudged) {
  for (const std::int64_t position :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{3}}) {
    for (const std::int64_t columns : {std::int64_t{8}, std::int64_t{40000}}) {
      const at::Tensor base = at::ones({columns, 4}, GetParam());
      base[columns / 2][position] = kInfinity;
      at::Tensor flag = at::zeros({});
      ops::unscale_({base.slice(1, 0, 4, 2)}, flag, at::scalar_tensor(0.5F));  // columns 0 and 2
      EXPECT_EQ(flag.item<float>(), position % 2 == 0 ? 1.0F : 0.0F) << position;
    }
  }
}

TEST_P(UnscaleDtype, OverlapIsMultipliedOncePerMentionAsByAten) {
  const at::Tensor ours = at::ones({8}, GetParam());
  const at::Tensor theirs = at::ones({8}, GetParam());
  at::Tensor flag = at::zeros({});
  const auto lists = [](const at::Tensor& t) {
    return std::vector<at::Tensor>{t, t, t.slice(0, 2, 6), t.as_strided({3, 4}, {2, 1})};
  };
  ops::unscale_(lists(ours), flag, at::scalar_tensor(0.5F));
  at::_amp_foreach_non_finite_check_and_unscale_(lists(theirs), flag, at::scalar_tensor(0.5F));
  EXPECT_TRUE(same_bits(ours, theirs));
}

TEST(Unscale, AcceptsAllDtypesInOneList) {
  at::manual_seed(13);
  std::vector<at::Tensor> grads;
  for (const auto dtype : {at::kFloat, at::kHalf, at::kDouble, at::kBFloat16, at::kFloat}) {
    grads.push_back(at::randn({33}).to(dtype));
  }
  expect_same_as_aten(grads, 0.125F);
}

TEST(Unscale, DoublesAreJudgedInTheirOwnRange) {
  at::Tensor flag = at::zeros({});
  ops::unscale_({at::full({3}, 1e300, at::kDouble)}, flag, at::scalar_tensor(0.5F));
  EXPECT_EQ(flag.item<float>(), 0.0F);
}

TEST(Unscale, AnOverflowOfTheProductIsNotFlagged) {
  at::Tensor flag = at::zeros({});
  const at::Tensor grad = at::full({1}, 60000.0, at::kHalf);
  ops::unscale_({grad}, flag, at::scalar_tensor(4.0F));
  EXPECT_EQ(grad.item<float>(), kInfinity);
  EXPECT_EQ(flag.item<float>(), 0.0F);
}

TEST(Unscale, TheFlagIsSetToOneAndNeverCleared) {
  at::Tensor flag = at::full({}, 7.0F);
  ops::unscale_({at::ones({2})}, flag, at::scalar_tensor(0.5F));
  EXPECT_EQ(flag.item<float>(), 7.0F);
  ops::unscale_({at::full({1}, kNan)}, flag, at::scalar_tensor(0.5F));
  EXPECT_EQ(flag.item<float>(), 1.0F);
}

TEST(Unscale, VersionCountersStay) {
  const at::Tensor grad = at::ones({2});
  const at::Tensor flag = at::zeros({});
  const auto versions = std::pair(grad._version(), flag._version());
  ops::unscale_({grad}, flag, at::scalar_tensor(0.5F));
  EXPECT_EQ(std::pair(grad._version(), flag._version()), versions);
}

void expect_same_error(std::vector<at::Tensor> grads, at::Tensor flag, const at::Tensor& inv_scale,
                       const std::string& part) {
  const std::string ours = error_text([&] { ops::unscale_(grads, flag, inv_scale); });
  EXPECT_EQ(ours, error_text([&] {
              at::_amp_foreach_non_finite_check_and_unscale_(grads, flag, inv_scale);
            }));
  EXPECT_NE(ours.find(part), std::string::npos) << ours;
}

TEST(UnscaleErrors, ScalarsAreCheckedInAtensOrder) {
  const std::vector<at::Tensor> grads{at::ones({2})};
  const at::Tensor wrong = at::zeros({2}, at::kDouble);
  expect_same_error(grads, wrong, wrong, "inv_scale must be a 1-element tensor.");
  expect_same_error(grads, wrong, at::ones({}, at::kDouble),
                    "found_inf must be a 1-element tensor.");
  expect_same_error(grads, at::zeros({}, at::kDouble), at::ones({}, at::kDouble),
                    "inv_scale must be a float tensor.");
  expect_same_error(grads, at::zeros({}, at::kDouble), at::ones({}),
                    "found_inf must be a float tensor.");
}

TEST(UnscaleErrors, AnEmptyListIsAcceptedBeforeAnyCheck) {
  const at::Tensor wrong = at::zeros({2}, at::kDouble);
  EXPECT_NO_THROW(ops::unscale_({}, wrong, wrong));
}

TEST(UnscaleErrors, OtherDtypesAreNotImplemented) {
  for (const auto dtype : {at::kComplexFloat, at::kComplexDouble, at::kInt, at::kLong, at::kBool,
                           at::kFloat8_e4m3fn}) {
    for (const std::int64_t size : {0, 2}) {
      const at::Tensor grad = at::zeros({size}, dtype);
      EXPECT_THROW(ops::unscale_({grad}, at::zeros({}), at::ones({})), c10::NotImplementedError);
      expect_same_error({grad}, at::zeros({}), at::ones({}), "not implemented for '");
    }
  }
}

TEST(UnscaleErrors, ExpandedGradientsAreRefused) {
  expect_same_error({at::ones({1}).expand({4})}, at::zeros({}), at::ones({}),
                    "more than one element of the written-to tensor");
  EXPECT_NO_THROW(ops::unscale_({at::ones({1}).expand({1})}, at::zeros({}), at::ones({})));
}

TEST(UnscaleErrors, GradientsBeforeTheRefusedOneAreMultiplied) {
  const at::Tensor first = at::ones({2});
  const at::Tensor last = at::ones({2});
  EXPECT_THROW(
      ops::unscale_({first, at::ones({2}, at::kInt), last}, at::zeros({}), at::scalar_tensor(0.5F)),
      c10::Error);
  EXPECT_EQ(first[0].item<float>(), 0.5F);
  EXPECT_EQ(last[0].item<float>(), 1.0F);
}

}  // namespace
}  // namespace ampscaler
