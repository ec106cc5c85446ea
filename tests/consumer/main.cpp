// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// One training step through the class, in a program without Python: proves headers, linking and
// loading.

#include <iostream>

#include <ATen/Functions.h>
#include <torch/optim/sgd.h>

#include <ampscaler/ampscaler.h>

int main() {
  const at::Tensor weight = at::ones({2}).requires_grad_();
  torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(0.5));
  ampscaler::AmpScaler scaler(
      ampscaler::AmpScalerOptions(at::kCPU).init_scale(1024).growth_interval(1));

  scaler.scale(weight.mul(2).sum()).backward();
  scaler.step(optimizer);
  scaler.update();

  // The true gradient is 2, so each weight moves from 1 to 1 - 0.5 * 2; a clean step doubles 1024.
  const bool stepped = weight.eq(0).all().item<bool>();
  std::cout << "stepped " << stepped << " scale " << scaler.get_scale() << '\n';
  return stepped && scaler.get_scale() == 2048 ? 0 : 1;
}
