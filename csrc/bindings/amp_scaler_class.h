// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The Python class AmpScaler, whose methods are bound in two files.

#include <torch/csrc/utils/pybind.h>

#include <ampscaler/amp_scaler.h>

namespace ampscaler::bindings {

using ScalerClass = py::class_<AmpScaler>;

/// Clips, queries and the divisor.
void bind_amp_scaler_clip(ScalerClass& scaler);

}  // namespace ampscaler::bindings
