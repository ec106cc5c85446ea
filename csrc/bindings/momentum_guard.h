// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// torch's fused SGD creates momentum buffers without filling them and leaves them so when the step is
// skipped: what happened to be in that memory would become momentum.

#include <vector>

#include <torch/csrc/utils/pybind.h>

namespace ampscaler::bindings {

/// Remembers, before a fused step, the parameters that have no momentum buffer yet. Costs nothing for
/// other optimizers. The GIL must be held.
class MomentumGuard {
 public:
  explicit MomentumGuard(const py::object& optimizer);

  /// Removes the buffers that the step has created if it was skipped. Waits for the device, but only where
  /// there are such buffers. They are not zeroed: with dampening, a first buffer is the gradient itself.
  void after_step(const at::Tensor& found_inf) const;

 private:
  void remember(const py::dict& group);

  py::object states_;  // the optimizer's `state`
  std::vector<py::object> parameters_;
};

}  // namespace ampscaler::bindings
