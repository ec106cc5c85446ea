// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Trains a LibTorch model on handwritten digits in fp32, in fp16, and in fp16 with AmpScaler.
// Then replays the overflows of the Python demo: train_digits DIGITS.csv SCALE_TRACE.csv

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <ampscaler/ampscaler.h>

#include "digits_files.h"
#include "scale_replay.h"

namespace {

constexpr int kEpochs = 20;
constexpr std::int64_t kBatchSize = 64;

// The same values as in examples/python/train_digits.py, which says why.
constexpr double kLossWeight = 0x1p-16;
constexpr double kInitScale = 0x1p40;
constexpr std::int64_t kGrowthInterval = 40;

struct Run {
  std::string name;
  double accuracy;
  std::vector<Step> steps;
};

torch::nn::Sequential make_model() {
  using torch::nn::Linear;
  using torch::nn::ReLU;
  return torch::nn::Sequential(Linear(64, 128), ReLU(), Linear(128, 128), ReLU(), Linear(128, 10));
}

double measure_accuracy(torch::nn::Sequential& model, const Digits& digits) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor guesses = model->forward(digits.test_images).argmax(1);
  return (guesses == digits.test_labels).to(torch::kDouble).mean().item<double>();
}

/// One epoch in batches, in random order.
std::vector<torch::Tensor> make_batches(const torch::Tensor& labels) {
  const std::int64_t count = labels.size(0) / kBatchSize * kBatchSize;
  return torch::randperm(labels.size(0), labels.options()).narrow(0, 0, count).split(kBatchSize);
}

/// Everything that a training changes from step to step.
struct Training {
  torch::nn::Sequential model;
  torch::optim::Adam optimizer;
  ampscaler::AmpScaler scaler;
};

Step train_batch(Training& training, const torch::Tensor& images, const torch::Tensor& labels,
                 torch::ScalarType dtype) {
  training.optimizer.zero_grad();
  torch::Tensor loss;
  {
    const ampscaler::AutocastGuard autocast(images.device().type(), dtype);
    loss = torch::cross_entropy_loss(training.model->forward(images), labels);
  }
  const double scale = training.scaler.get_scale();
  training.scaler.scale(loss * kLossWeight).backward();
  const ampscaler::StepResult result = training.scaler.step(training.optimizer);
  training.scaler.update();
  return {loss.item<double>(), scale, !result.applied()};
}

/// With float32 autocast is off, and with disabled options so is the scaler: the loop is the same.
Run train(const std::string& name, const Digits& digits, torch::ScalarType dtype,
          const ampscaler::AmpScalerOptions& options) {
  torch::manual_seed(0);
  torch::nn::Sequential model = make_model();
  model->to(options.device());
  // Far below the gradients, so that kLossWeight cancels out.
  const auto adam_options = torch::optim::AdamOptions(2e-3).eps(1e-12);
  Training training{model, torch::optim::Adam(model->parameters(), adam_options),
                    ampscaler::AmpScaler(options)};
  Run run{name, 0, {}};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (const torch::Tensor& batch : make_batches(digits.train_labels)) {
      const torch::Tensor images = digits.train_images.index_select(0, batch);
      const torch::Tensor labels = digits.train_labels.index_select(0, batch);
      run.steps.push_back(train_batch(training, images, labels, dtype));
    }
  }
  run.accuracy = measure_accuracy(model, digits);
  return run;
}

void print_row(const Run& run) {
  const auto skipped = std::count_if(run.steps.begin(), run.steps.end(),
                                     [](const Step& step) { return step.skipped; });
  const auto applied = static_cast<std::ptrdiff_t>(run.steps.size()) - skipped;
  std::cout << std::left << std::setw(22) << run.name << std::right << std::fixed
            << std::setprecision(4) << std::setw(12) << run.accuracy << std::setw(12)
            << run.steps.back().loss << std::setw(12) << applied << std::setw(12) << skipped
            << std::setw(12) << power_of_two(run.steps.front().scale) << std::setw(12)
            << power_of_two(run.steps.back().scale) << "\n";
}

void run_demo(const std::string& digits_path, const std::string& trace_path) {
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  torch::set_num_threads(1);  // the model is tiny: more threads would mostly wait for each other
  const Digits digits = read_digits(digits_path, device);
  const std::vector<Step> recorded = read_scale_trace(trace_path);

  const auto off = ampscaler::AmpScalerOptions(device).enabled(false);
  const auto on =
      ampscaler::AmpScalerOptions(device).init_scale(kInitScale).growth_interval(kGrowthInterval);
  std::cout << "\nC++, trained on " << device << ":\n"
            << "run                       accuracy   last loss     applied     skipped first scale"
            << "  last scale\n";
  print_row(train("fp32", digits, torch::kFloat, off));
  print_row(train("fp16 without scaling", digits, torch::kHalf, off));
  print_row(train("fp16, AmpScaler", digits, torch::kHalf, on));
  compare_scales(recorded, replay_scales(recorded, on));
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count != 3) {
    std::cerr << "usage: train_digits DIGITS.csv SCALE_TRACE.csv\n";
    return 2;
  }
  try {
    run_demo(arguments[1], arguments[2]);
  } catch (const std::exception& error) {
    std::cerr << "train_digits: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
