// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The adapter for torch::optim::Optimizer: walks its parameter groups and calls its step.

#include <functional>

#include "ampscaler/optimizer_adapter.h"

namespace torch::optim {
class Optimizer;
}

namespace ampscaler {

class TorchOptimizer final : public OptimizerAdapter {
 public:
  explicit TorchOptimizer(torch::optim::Optimizer& optimizer);

  const void* identity() const override;
  std::vector<at::Tensor> parameters() const override;
  at::Tensor step() override;
  bool is_amp_aware() const override;
  at::Tensor step_amp(const std::optional<at::Tensor>& grad_scale,
                      const at::Tensor& found_inf) override;

 private:
  torch::optim::Optimizer& optimizer_;
  AmpAware* amp_aware_;  // the optimizer's other side, or nullptr
};

/// optimizer.step(closure).
at::Tensor step_with_closure(torch::optim::Optimizer& optimizer,
                             const std::function<at::Tensor()>& closure);

}  // namespace ampscaler
