"""Failure: late in training gradients are so small that fp16 rounds them to zero, and parameters stand still.

Prints how many gradients are zero without and with scaling, and in bfloat16 without: for known gradients 2^-1 to 2^-32,
and for a model near its optimum.
"""

import dataclasses

import torch
from torch import nn

import ampscaler


@dataclasses.dataclass
class Zeros:
    """How many gradient elements there are, and how many of them are zero or not finite."""

    total: int
    zero: int
    nonfinite: int


def count(gradient: torch.Tensor) -> Zeros:
    """The counts of one gradient."""
    return Zeros(gradient.numel(), int((gradient == 0).sum()), int((~gradient.isfinite()).sum()))


def known_gradients(scale: float, dtype: torch.dtype = torch.float16) -> tuple[Zeros, int]:
    """Gradients 2^-1 ... 2^-32 that pass through fp16 (smallest number 2^-24), and how many arrive exactly."""
    wanted = torch.tensor([2.0**-exponent for exponent in range(1, 33)])
    parameter = nn.Parameter(torch.ones(len(wanted)))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = ampscaler.AmpScaler("cpu", init_scale=scale)
    loss = (parameter.to(dtype).float() * wanted).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    return count(parameter.grad), int((parameter.grad == wanted).sum())


def near_the_optimum(scale: float, dtype: torch.dtype = torch.float16) -> tuple[Zeros, Zeros]:
    """Gradients of the hidden activations and of the first layer's weight; the outputs are right to about 1e-4.

    The loss is a mean over 4096 outputs, so that the gradient of one of them is about 2 * 1e-4 / 4096 = 5e-8.
    """
    torch.manual_seed(0)
    first, last = nn.Linear(16, 32), nn.Linear(32, 16)
    rows, noise = torch.randn(256, 16), torch.randn(256, 16)
    optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=1.0)
    scaler = ampscaler.AmpScaler("cpu", init_scale=scale)
    with torch.autocast("cpu", dtype):
        hidden = first(rows).tanh()
        hidden.retain_grad()
        output = last(hidden)
        targets = output.detach().float() + 1e-4 * noise
        loss = nn.functional.mse_loss(output, targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    return count(hidden.grad), count(first.weight.grad)


def main() -> None:
    """Prints the counts without scaling (scale 1), with a scale of 2^16, and for bfloat16."""
    torch.set_num_threads(1)
    for scale, dtype in ((1.0, torch.float16), (2.0**16, torch.float16), (1.0, torch.bfloat16)):
        known, exact = known_gradients(scale, dtype)
        hidden, weight = near_the_optimum(scale, dtype)
        print(f"{dtype}, scale {scale:g}")
        print(f"  known gradients 2^-1 ... 2^-32     {known.zero} of {known.total} are 0, {exact} are exact")
        print(f"  hidden activations of a model      {hidden.zero} of {hidden.total} are 0")
        print(f"  its first layer's weight           {weight.zero} of {weight.total} are 0")


if __name__ == "__main__":
    main()
