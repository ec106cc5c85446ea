// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Everything a training program needs: #include <ampscaler/ampscaler.h>, link AmpScaler::ampscaler.

#include "ampscaler/amp_scaler.h"
#include "ampscaler/autocast_guard.h"
#include "ampscaler/errors.h"
#include "ampscaler/functional.h"
#include "ampscaler/gradient_groups.h"
#include "ampscaler/ops.h"
#include "ampscaler/optimizer_adapter.h"
#include "ampscaler/scale_policy.h"
#include "ampscaler/step_result.h"

namespace ampscaler {

/// Keeps libampscaler.so linked into a program that calls the operators by name only.
[[maybe_unused]] inline const bool operators_registered = ops::ensure_registered();

}  // namespace ampscaler
