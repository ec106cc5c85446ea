"""A regression in fp16, trained with the manager. docs/manager.md shows this program."""

import torch

import ampscaler

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
manager = ampscaler.RobustAMPManager(
    model, optimizer, growth_interval=50, min_scale=1.0, max_scale=2.0**18, max_norm=1.0, accumulation_steps=2
)
inputs = torch.randn(256, 8)
targets = inputs.sum(dim=1, keepdim=True)
for step in range(800):
    half = slice(0, 128) if step % 2 == 0 else slice(128, 256)
    loss = manager.training_step(inputs[half], targets[half], torch.nn.functional.mse_loss, step)
    if step % 2 == 1 and not manager.last_step.applied():
        print(f"step {step}: a gradient overflowed, the step was skipped")
print(f"final loss {loss:.6f}")
print(manager.get_diagnostics())
