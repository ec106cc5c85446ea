// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The stage machine of one optimizer within one iteration, with torch's texts for calls in the
// wrong order. A step from READY unscales first.
//
//   READY --unscale_--> UNSCALED --step--> STEPPED --update--> READY
//
// A clip may come in READY and UNSCALED, any number of times. It leads to UNSCALED if it writes true
// gradients, and stays where it is if the optimizer applies scale and coefficient itself.

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

// Whether gradients may still be clipped; if not, the text is "<method>() is being called after step()."
constexpr bool may_clip(Stage stage) { return stage != Stage::kStepped; }

}  // namespace ampscaler::core
