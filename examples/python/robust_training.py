"""RobustAMPManager on a problem of four numbers whose scale starts too high, is cut, grows again and meets its cap.

examples/cpp/robust_training.cpp is the same program for C++; the two print the same.
"""

import torch

import ampscaler

WINDOWS = 200
ACCUMULATION_STEPS = 2


def main() -> None:
    model = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    inputs = torch.eye(4)
    labels = torch.tensor([[1.0], [-2.0], [0.5], [0.25]])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    manager = ampscaler.RobustAMPManager(
        model,
        optimizer,
        init_scale=2.0**30,
        growth_interval=5,
        max_scale=2.0**24,
        min_scale=1.0,
        max_norm=1.0,
        accumulation_steps=ACCUMULATION_STEPS,
    )
    loss = 0.0
    for step in range(WINDOWS * ACCUMULATION_STEPS):
        rows = slice(2 * (step % ACCUMULATION_STEPS), 2 * (step % ACCUMULATION_STEPS) + 2)
        loss = manager.training_step(inputs[rows], labels[rows], torch.nn.functional.mse_loss, step)
    diagnostics = manager.get_diagnostics()
    print(f"current_scale: {diagnostics['current_scale']:.0f}")
    print(f"total_skips: {diagnostics['total_skips']}")
    print(f"scale_changes: {diagnostics['scale_changes']}")
    print("recent_scales:", *(f"{scale:.0f}" for scale in diagnostics["recent_scales"]))
    print(f"final loss {loss:.6f}")


if __name__ == "__main__":
    main()
