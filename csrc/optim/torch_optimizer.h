// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The adapter for torch::optim::Optimizer: walks its parameter groups and calls its step.

#include <deque>
#include <functional>
#include <vector>

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

/// An adapter for each of a list of optimizers.
class TorchOptimizers {
 public:
  using Optimizers = std::vector<std::reference_wrapper<torch::optim::Optimizer>>;
  using Adapters = std::vector<std::reference_wrapper<OptimizerAdapter>>;

  explicit TorchOptimizers(const Optimizers& optimizers);

  /// Valid as long as this object.
  const Adapters& adapters() const { return references_; }

 private:
  std::deque<TorchOptimizer> adapters_;  // which do not move when one is added
  Adapters references_;
};

/// optimizer.step(closure).
at::Tensor step_with_closure(torch::optim::Optimizer& optimizer,
                             const std::function<at::Tensor()>& closure);

}  // namespace ampscaler
