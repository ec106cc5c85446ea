// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// A Python optimizer as an OptimizerAdapter: anything with `param_groups` and `step` will do. The
// methods take the GIL themselves, so callers may have released it.

#include <torch/csrc/utils/pybind.h>

#include <ampscaler/optimizer_adapter.h>

namespace ampscaler::bindings {

/// True for torch's own fused Adam, AdamW, SGD and Adagrad with a step that nobody has replaced (but for
/// the count of a learning-rate scheduler), of an optimizer that claims to take the scale itself.
bool folds_clip(const py::object& optimizer);

class PythonOptimizer final : public OptimizerAdapter {
 public:
  PythonOptimizer(py::object optimizer, py::args args, py::kwargs kwargs);
  ~PythonOptimizer() override;

  const void* identity() const override;
  std::vector<at::Tensor> parameters() const override;
  at::Tensor step() override;

  /// What torch's scaler and ours go by. A copied or unpickled fused optimizer has lost it: it is stepped
  /// like an ordinary one, and nobody would apply a factor that was left to it.
  bool claims_amp_support() const;
  /// True for optimizers that read `grad_scale` and `found_inf` from attributes, like torch's fused
  /// ones.
  bool is_amp_aware() const override;
  std::optional<at::Tensor> user_grad_scale() const override;
  /// Others than torch's own fused optimizers may hand the attribute on, or not.
  bool folds_clip() const override;
  bool writes_true_gradients() const override;
  /// What a skipped step must not leave behind is removed: see MomentumGuard, which may wait.
  at::Tensor step_amp(const std::optional<at::Tensor>& grad_scale,
                      const at::Tensor& found_inf) override;

  /// What the optimizer's step returned, whatever its type; None before a step. The GIL must be
  /// held.
  const py::object& value() const { return value_; }

 private:
  void run();

  py::object optimizer_;
  py::args args_;
  py::kwargs kwargs_;
  py::object value_;
};

}  // namespace ampscaler::bindings
