// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The stage machine of one optimizer within one iteration, with torch's texts for calls in the
// wrong order. A step from READY unscales first.
//
//   READY --unscale_--> UNSCALED --step--> STEPPED --update--> READY

namespace ampscaler::core {

enum class Stage { kReady, kUnscaled, kStepped };

// Why `unscale_` is refused in this stage; nullptr when it is not.
constexpr const char* unscale_refusal(Stage stage) {
  switch (stage) {
    case Stage::kUnscaled:
      return "unscale_() has already been called on this optimizer since the last update().";
    case Stage::kStepped:
      return "unscale_() is being called after step().";
    case Stage::kReady:
      break;
  }
  return nullptr;
}

// Why `step` is refused in this stage; nullptr when it is not.
constexpr const char* step_refusal(Stage stage) {
  return stage == Stage::kStepped ? "step() has already been called since the last update()."
                                  : nullptr;
}

}  // namespace ampscaler::core
