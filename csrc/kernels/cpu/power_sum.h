// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Sums for norms other than 2 and inf, in plain double arithmetic. They are a convenience: correct, not
// fast.

#include "core/units.h"

namespace ampscaler::cpu {

/// The sum of |x|^norm_type over the finite elements of a unit, for norm_type > 0.
double power_sum(const core::Unit& unit, double norm_type);

}  // namespace ampscaler::cpu
