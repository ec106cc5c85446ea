// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Reads the two files that examples/python/train_digits.py writes: the digits and its scale trace.

#include <string>
#include <vector>

#include <torch/types.h>

/// Pictures as rows of 64 brightnesses in [0, 1], labels from 0 to 9.
struct Digits {
  torch::Tensor train_images;
  torch::Tensor train_labels;
  torch::Tensor test_images;
  torch::Tensor test_labels;
};

/// One training step: its loss, the scale that multiplied it, and whether it was skipped.
struct Step {
  double loss;
  double scale;
  bool skipped;
};

/// Both throw std::runtime_error with a sentence if the file cannot be read.
Digits read_digits(const std::string& path, torch::Device device);
std::vector<Step> read_scale_trace(const std::string& path);
