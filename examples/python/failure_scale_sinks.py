"""Failure: overflow after overflow halves the scale, parameters stand still, and in the end they are NaN.

Prints what becomes of torch's scaler, of ours, and of ours with a floor under the scale (ScalePolicy.min_scale).
"""

import dataclasses

import torch
from torch import nn

import ampscaler

GOOD_STEPS = 2000  # one growth interval of ordinary steps after the bad ones


@dataclasses.dataclass
class Outcome:
    """What a run went through. Skips are counted from 1; None means never."""

    inverse_is_inf_at: int | None = None
    scale_is_0_at: int | None = None
    scale_is_1_at: int | None = None
    scale_after_bad_steps: float = 0.0
    scale_after_good_steps: float = 0.0
    applied: int = 0
    parameter: float = 0.0


def step_once(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, parameter: nn.Parameter, slope: float):
    """One step on loss = slope * parameter, with a gradient that passes through fp16. A slope of inf overflows."""
    optimizer.zero_grad()
    scaler.scale((parameter.half().float() * slope).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def note_scale(outcome: Outcome, scale: float, skip: int) -> None:
    """Notes the first skip at which the scale, or the factor that gradients are unscaled by, has come to an end."""
    inverse = torch.tensor(scale, dtype=torch.float64).reciprocal().float().item()  # as torch computes it
    if inverse == float("inf"):
        outcome.inverse_is_inf_at = outcome.inverse_is_inf_at or skip
    if scale == 0.0:
        outcome.scale_is_0_at = outcome.scale_is_0_at or skip
    if scale == 1.0:
        outcome.scale_is_1_at = outcome.scale_is_1_at or skip


def run(scaler: torch.amp.GradScaler, bad_steps: int) -> Outcome:
    """`bad_steps` that overflow, then GOOD_STEPS with slope 1 at learning rate 1/1024; the parameter starts at 1."""
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=2.0**-10)
    outcome = Outcome()

    def count(*_) -> None:
        outcome.applied += 1

    optimizer.register_step_post_hook(count)
    for skip in range(1, bad_steps + 1):
        step_once(scaler, optimizer, parameter, float("inf"))
        note_scale(outcome, scaler.get_scale(), skip)
    outcome.scale_after_bad_steps = scaler.get_scale()
    for _ in range(GOOD_STEPS):
        step_once(scaler, optimizer, parameter, 1.0)
    outcome.scale_after_good_steps = scaler.get_scale()
    outcome.parameter = parameter.item()
    return outcome


def make_scaler(name: str) -> torch.amp.GradScaler:
    """One of the three, with torch's defaults: first scale 2^16, growth interval 2000."""
    if name == "torch":
        return torch.amp.GradScaler("cpu")
    return ampscaler.GradScaler("cpu", policy=ampscaler.ScalePolicy(min_scale=1.0) if "min_scale" in name else None)


def main() -> None:
    """Prints a block for each scaler and for 60 and 170 bad steps."""
    torch.set_num_threads(1)
    for name in ("torch", "ampscaler", "ampscaler, min_scale=1"):
        for bad_steps in (60, 170):
            outcome = run(make_scaler(name), bad_steps)
            print(f"{name}: {bad_steps} steps overflow, then {GOOD_STEPS} do not")
            print(f"  scale after the bad steps        {outcome.scale_after_bad_steps:g}")
            print(f"  scale is 1 at skip               {outcome.scale_is_1_at}")
            print(f"  1/scale is inf at skip           {outcome.inverse_is_inf_at}")
            print(f"  scale is 0 at skip               {outcome.scale_is_0_at}")
            print(f"  scale after the good steps       {outcome.scale_after_good_steps:g}")
            print(f"  good steps that were applied     {outcome.applied}")
            print(f"  parameter, which started at 1    {outcome.parameter:g}")


if __name__ == "__main__":
    main()
