// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// A small regression in fp16, trained with ampscaler. README shows the body of main.

#include <iostream>

#include <torch/torch.h>

#include <ampscaler/ampscaler.h>

int main() {
  const torch::Tensor inputs = torch::randn({256, 8});
  const torch::Tensor targets = inputs.sum(1, /*keepdim=*/true);

  torch::nn::Linear model(8, 1);
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.1);
  ampscaler::AmpScaler scaler(ampscaler::AmpScalerOptions(torch::kCPU));  // or torch::kCUDA
  torch::Tensor loss;
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    {
      ampscaler::AutocastGuard autocast(torch::kCPU, torch::kHalf);
      loss = torch::mse_loss(model->forward(inputs), targets);
    }
    scaler.scale(loss).backward();
    ampscaler::StepResult result = scaler.step(optimizer);
    if (!result.applied()) std::cout << "step " << step << " overflowed and was skipped\n";
    scaler.update();
  }
  std::cout << "final loss " << loss.item<float>() << ", scale " << scaler.get_scale() << "\n";
}
