// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Every pair of stage and call, with torch's texts.

#include "core/stage.h"

#include <gtest/gtest.h>

namespace ampscaler::core {
namespace {

TEST(Stage, UnscaleIsAllowedOnlyFromReady) {
  EXPECT_EQ(unscale_refusal(Stage::kReady), nullptr);
  EXPECT_STREQ(unscale_refusal(Stage::kUnscaled),
               "unscale_() has already been called on this optimizer since the last update().");
  EXPECT_STREQ(unscale_refusal(Stage::kStepped), "unscale_() is being called after step().");
}

TEST(Stage, StepIsRefusedOnlyAfterStep) {
  EXPECT_EQ(step_refusal(Stage::kReady), nullptr);
  EXPECT_EQ(step_refusal(Stage::kUnscaled), nullptr);
  EXPECT_STREQ(step_refusal(Stage::kStepped),
               "step() has already been called since the last update().");
}

}  // namespace
}  // namespace ampscaler::core
