// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// OptimizerAdapter's defaults and the adapter for torch::optim::Optimizer.

#include "optim/torch_optimizer.h"

#include <torch/optim/optimizer.h>

namespace ampscaler {

AmpAware::~AmpAware() = default;
OptimizerAdapter::~OptimizerAdapter() = default;

bool OptimizerAdapter::is_amp_aware() const { return false; }

std::optional<at::Tensor> OptimizerAdapter::user_grad_scale() const { return std::nullopt; }

bool OptimizerAdapter::folds_clip() const { return is_amp_aware(); }

bool OptimizerAdapter::writes_true_gradients() const { return false; }

at::Tensor OptimizerAdapter::step_amp(const std::optional<at::Tensor>& /*grad_scale*/,
                                      const at::Tensor& /*found_inf*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "OptimizerAdapter::step_amp: this optimizer cannot skip on the device.");
}

TorchOptimizer::TorchOptimizer(torch::optim::Optimizer& optimizer)
    : optimizer_(optimizer), amp_aware_(dynamic_cast<AmpAware*>(&optimizer)) {}

const void* TorchOptimizer::identity() const { return &optimizer_; }

std::vector<at::Tensor> TorchOptimizer::parameters() const {
  // Not Optimizer::parameters(): it prints a removal warning on every call.
  std::vector<at::Tensor> result;
  for (const torch::optim::OptimizerParamGroup& group : optimizer_.param_groups()) {
    result.insert(result.end(), group.params().begin(), group.params().end());
  }
  return result;
}

at::Tensor TorchOptimizer::step() { return optimizer_.step(); }

bool TorchOptimizer::is_amp_aware() const { return amp_aware_ != nullptr; }

at::Tensor TorchOptimizer::step_amp(const std::optional<at::Tensor>& grad_scale,
                                    const at::Tensor& found_inf) {
  return amp_aware_->step_amp(grad_scale, found_inf);
}

TorchOptimizers::TorchOptimizers(const Optimizers& optimizers) {
  for (torch::optim::Optimizer& optimizer : optimizers) {
    references_.emplace_back(adapters_.emplace_back(optimizer));
  }
}

at::Tensor step_with_closure(torch::optim::Optimizer& optimizer,
                             const std::function<at::Tensor()>& closure) {
  return optimizer.step(closure);
}

}  // namespace ampscaler
