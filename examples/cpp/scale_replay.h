// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Lets an AmpScaler meet the overflows that Python recorded, and compares the scales.

#include <string>
#include <vector>

#include <ampscaler/amp_scaler.h>

#include "digits_files.h"

/// A scale as 2^n, which is easier to compare than its digits.
std::string power_of_two(double scale);

/// Trains one weight whose gradient is infinite at the skipped steps. Returns the scale before each
/// step.
std::vector<double> replay_scales(const std::vector<Step>& recorded,
                                  const ampscaler::AmpScalerOptions& options);

/// Prints the first scale changes of both side by side. Throws std::runtime_error with a sentence
/// if a scale differs.
void compare_scales(const std::vector<Step>& recorded, const std::vector<double>& replayed);
