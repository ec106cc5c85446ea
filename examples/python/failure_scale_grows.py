"""Failure: the scale grows until ordinary gradients overflow, at regular intervals and for the rest of the training.

Prints the skipped steps of a model whose gradients are 1, in fp16, without and with a cap (ScalePolicy.max_scale),
and how far the scale goes where nothing can overflow.
"""

import dataclasses

import torch
from torch import nn

import ampscaler

STEPS = 100
GROWTH_INTERVAL = 4  # torch's default of 2000 gives the same picture, 500 times slower
INIT_SCALE = 2.0**10


@dataclasses.dataclass
class Growth:
    """A finished run: which steps were skipped (from 1), and the largest and the last scale."""

    skipped: list[int]
    largest: float
    last: float


def grow(policy: ampscaler.ScalePolicy | None) -> Growth:
    """A linear layer in fp16 whose output gradient is 1, so that 1 * scale must fit below fp16's largest, 65504."""
    layer = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=2.0**-10)
    scaler = ampscaler.AmpScaler("cpu", init_scale=INIT_SCALE, growth_interval=GROWTH_INTERVAL, policy=policy)
    growth = Growth(skipped=[], largest=INIT_SCALE, last=INIT_SCALE)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            output = layer(torch.ones(1, 1))
        scaler.scale(output.float().sum()).backward()
        if not scaler.step(optimizer).applied():
            growth.skipped.append(step)
        scaler.update()
        growth.last = scaler.get_scale()
        growth.largest = max(growth.largest, growth.last)
    return growth


def grow_in_float32(policy: ampscaler.ScalePolicy | None, steps: int = 130) -> list[float]:
    """The scales after each step where nothing ever overflows, growing at each step from 2^16."""
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    scaler = ampscaler.AmpScaler("cpu", growth_interval=1, policy=policy)
    scales = []
    for _ in range(steps):
        scaler.scale(torch.ones(()))
        parameter.grad = torch.ones(1)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def main() -> None:
    """Prints the runs without and with a cap."""
    torch.set_num_threads(1)
    for name, max_scale in (("no cap", None), ("max_scale=2^15", 2.0**15)):
        growth = grow(ampscaler.ScalePolicy(max_scale=max_scale))
        print(f"{name}: {len(growth.skipped)} of {STEPS} steps skipped, the first ones {growth.skipped[:4]}")
        print(f"  largest scale {growth.largest:g}, last scale {growth.last:g}")
    for name, max_scale in (("no cap", None), ("max_scale=2^24", 2.0**24)):
        scales = grow_in_float32(ampscaler.ScalePolicy(max_scale=max_scale))
        print(f"float32, {name}: largest scale {max(scales):g}, reached at step {scales.index(max(scales)) + 1}")


if __name__ == "__main__":
    main()
