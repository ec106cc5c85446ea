// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The training step of ampscaler.RobustAMPManager in C++: autocast, accumulation, clipping, a scale
// between a floor and a cap, and a record of what happened. examples/python/robust_training.py trains
// the same problem with the manager; the two print the same.

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <ampscaler/ampscaler.h>

namespace {

constexpr int kWindows = 200;
constexpr int kAccumulationSteps = 2;
constexpr double kMaxNorm = 1.0;
constexpr std::size_t kRecentChanges = 10;

struct ScaleChange {
  int step;
  double pre_scale;
  double post_scale;
  double loss;  // of the whole window
};

/// One call of training_step is one micro-batch; every kAccumulationSteps-th one ends a window.
class Trainer {
 public:
  Trainer(torch::nn::Linear model, torch::optim::Optimizer& optimizer,
          const ampscaler::AmpScalerOptions& options)
      : model_(std::move(model)), optimizer_(optimizer), scaler_(options) {}

  /// The loss of this micro-batch, also when the step was skipped. Waits for the device.
  double training_step(const torch::Tensor& batch, const torch::Tensor& labels, int step_idx) {
    if (micro_batches_ == 0) {
      optimizer_.zero_grad();
      window_loss_ = 0.0;
    }
    torch::Tensor loss;
    {
      const ampscaler::AutocastGuard autocast(batch.device().type(), torch::kHalf);
      loss = torch::mse_loss(model_->forward(batch), labels);
    }
    constexpr double kWeight = 1.0 / kAccumulationSteps;
    scaler_.scale(loss * kWeight).backward();
    const double value = loss.item<double>();
    window_loss_ += kWeight * value;
    if (++micro_batches_ == kAccumulationSteps) {
      micro_batches_ = 0;
      end_window(step_idx);
    }
    return value;
  }

  void print_diagnostics() const {
    std::printf("current_scale: %.0f\n", scaler_.get_scale());
    std::printf("total_skips: %d\n", skip_count_);
    std::printf("scale_changes: %zu\n", scale_history_.size());
    std::printf("recent_scales:");
    const std::size_t count = scale_history_.size();
    for (std::size_t i = count - std::min(count, kRecentChanges); i < count; ++i) {
      std::printf(" %.0f", scale_history_[i].post_scale);
    }
    std::printf("\n");
  }

 private:
  void end_window(int step_idx) {
    scaler_.clip_grad_norm_(optimizer_, kMaxNorm);
    // The decision itself is counted: at the floor and at the cap the scale does not show it.
    const ampscaler::StepResult result = scaler_.step(optimizer_);
    skip_count_ += result.applied() ? 0 : 1;
    const double pre_scale = scaler_.get_scale();
    scaler_.update();
    const double post_scale = scaler_.get_scale();
    if (post_scale != pre_scale) {
      scale_history_.push_back({step_idx, pre_scale, post_scale, window_loss_});
    }
  }

  torch::nn::Linear model_;
  torch::optim::Optimizer& optimizer_;
  ampscaler::AmpScaler scaler_;
  std::vector<ScaleChange> scale_history_;
  int skip_count_ = 0;
  int micro_batches_ = 0;  // of the open window
  double window_loss_ = 0.0;
};

}  // namespace

int main() {
  torch::nn::Linear model(torch::nn::LinearOptions(4, 1).bias(false));
  {
    const torch::NoGradGuard no_grad;
    model->weight.zero_();
  }
  const torch::Tensor inputs = torch::eye(4);
  const torch::Tensor labels = torch::tensor({{1.0F}, {-2.0F}, {0.5F}, {0.25F}});
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.25);
  Trainer trainer(model, optimizer,
                  ampscaler::AmpScalerOptions(torch::kCPU)
                      .init_scale(1 << 30)
                      .growth_interval(5)
                      .policy(ampscaler::ScalePolicy().min_scale(1).max_scale(1 << 24)));
  double loss = 0.0;
  for (int step = 0; step < kWindows * kAccumulationSteps; ++step) {
    const int first_row = 2 * (step % kAccumulationSteps);
    loss = trainer.training_step(inputs.slice(0, first_row, first_row + 2),
                                 labels.slice(0, first_row, first_row + 2), step);
  }
  trainer.print_diagnostics();
  std::printf("final loss %.6f\n", loss);
  return 0;
}
