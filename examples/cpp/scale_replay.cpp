// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The scale depends only on the options and on which steps overflowed, so one weight is enough.

#include "scale_replay.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <limits>
#include <sstream>
#include <stdexcept>

#include <torch/optim/sgd.h>

namespace {

constexpr std::size_t kChangesToPrint = 10;

/// The steps whose scale differs from that of the step before, and the first step.
std::vector<std::size_t> find_changes(const std::vector<Step>& steps) {
  std::vector<std::size_t> changes = {0};
  for (std::size_t index = 1; index < steps.size(); ++index) {
    if (steps[index].scale != steps[index - 1].scale) {
      changes.push_back(index);
    }
  }
  return changes;
}

void check_equal(const std::vector<Step>& recorded, const std::vector<double>& replayed) {
  for (std::size_t index = 0; index < recorded.size(); ++index) {
    if (recorded[index].scale != replayed[index]) {
      throw std::runtime_error("at step " + std::to_string(index) + " the scale in Python was " +
                               power_of_two(recorded[index].scale) +
                               ", but replayed in C++ it is " + power_of_two(replayed[index]) +
                               ".");
    }
  }
}

}  // namespace

std::string power_of_two(double scale) {
  std::ostringstream text;
  text << "2^" << std::log2(scale);
  return text.str();
}

std::vector<double> replay_scales(const std::vector<Step>& recorded,
                                  const ampscaler::AmpScalerOptions& options) {
  torch::Tensor weight = torch::ones({}, torch::device(options.device()).requires_grad(true));
  torch::optim::SGD optimizer({weight}, /*lr=*/0.1);
  ampscaler::AmpScaler scaler(options);
  std::vector<double> scales;
  for (const Step& step : recorded) {
    scales.push_back(scaler.get_scale());
    const double slope = step.skipped ? std::numeric_limits<double>::infinity() : 1.0;
    optimizer.zero_grad();
    scaler.scale(weight * slope).backward();
    scaler.step(optimizer);
    scaler.update();
  }
  return scales;
}

void compare_scales(const std::vector<Step>& recorded, const std::vector<double>& replayed) {
  const std::vector<std::size_t> changes = find_changes(recorded);
  const std::size_t count = std::min(changes.size(), kChangesToPrint);
  std::cout << "\nThe first " << count << " scales of " << changes.size()
            << ", with the overflows that Python recorded:\n"
            << "from step      Python         C++\n";
  for (std::size_t index = 0; index < count; ++index) {
    const std::size_t step = changes[index];
    std::cout << std::setw(9) << step << std::setw(12) << power_of_two(recorded[step].scale)
              << std::setw(12) << power_of_two(replayed[step]) << "\n";
  }
  check_equal(recorded, replayed);
  std::cout << "\nThe scales of all " << recorded.size()
            << " steps are equal in Python and in C++.\n";
}
