"""A small regression in fp16, trained with ampscaler. README shows this program."""

import torch

import ampscaler

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = ampscaler.GradScaler("cpu")  # or "cuda"
inputs = torch.randn(256, 8)
targets = inputs.sum(dim=1, keepdim=True)
for _ in range(100):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(f"final loss {loss.item():.6f}, scale {scaler.get_scale():g}")
