"""Failure: a skipped step protects parameters, but BatchNorm's running statistics were changed in the forward pass.

Prints the statistics after an overflow in the backward pass (harmless), after one in the forward pass (non-finite for
ever), with two remedies, and for a BatchNorm that was converted to fp16.
"""

import contextlib
import dataclasses

import torch
from torch import nn

import ampscaler

STEPS = 20


class Net(nn.Module):
    """Linear, BatchNorm, Linear; the first layer in float32 if asked to."""

    def __init__(self, first_in_float32: bool) -> None:
        super().__init__()
        self.first_in_float32 = first_in_float32
        self.first, self.norm, self.last = nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2), nn.Linear(2, 1)
        with torch.no_grad():
            self.first.weight.copy_(torch.tensor([[1.0, 0.5], [-0.5, 1.0]]))
            self.last.weight.copy_(torch.tensor([[0.5, 0.25]]))
            self.last.bias.zero_()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Under the autocast that is on, except for the first layer if it is to be in float32."""
        with torch.autocast("cpu", enabled=False) if self.first_in_float32 else contextlib.nullcontext():
            hidden = self.first(rows)
        return self.last(self.norm(hidden))


@dataclasses.dataclass
class Outcome:
    """What was applied, how many batches BatchNorm counted, and whether its statistics and an evaluation are finite."""

    applied: int
    skipped: int
    batches_tracked: int
    running_mean: list[float]
    statistics_finite: bool
    evaluation_finite: bool


def statistics(model: nn.Module) -> list[torch.Tensor]:
    """The buffers that a forward pass of BatchNorm writes."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    return [buffer for norm in norms for buffer in norm.buffers()]


def train(init_scale: float, bad_step: int | None, restore: bool = False, first_in_float32: bool = False) -> Outcome:
    """STEPS steps in fp16. At `bad_step` the rows are so large that the first layer overflows in fp16.

    With `restore`, the statistics of a skipped step are put back to what they were before its forward pass.
    """
    model = Net(first_in_float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-10)
    scaler = ampscaler.AmpScaler("cpu", init_scale=init_scale)
    rows = torch.tensor([[1.0, 2.0], [3.0, -1.0], [-2.0, 0.5], [0.0, 1.0]])
    applied = 0
    for step in range(STEPS):
        batch = rows * 2.0**16 if step == bad_step else rows
        saved = [buffer.clone() for buffer in statistics(model)] if restore else []
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = (model(batch) - 1.5).float().square().mean()
        scaler.scale(loss).backward()
        step_applied = scaler.step(optimizer).applied()
        scaler.update()
        applied += step_applied
        if restore and not step_applied:
            for buffer, value in zip(statistics(model), saved, strict=True):
                buffer.copy_(value)
    model.eval()
    finite = all(bool(buffer.isfinite().all()) for buffer in statistics(model))
    with torch.no_grad():
        evaluation = bool(model(rows).isfinite().all())
    mean = model.norm.running_mean.tolist()
    return Outcome(applied, STEPS - applied, int(model.norm.num_batches_tracked), mean, finite, evaluation)


def running_variance(dtype: torch.dtype) -> float:
    """The running variance of a BatchNorm in `dtype` after one batch of fp16 activations +-60000, which are finite."""
    norm = nn.BatchNorm1d(1).to(dtype)
    norm(torch.tensor([[60000.0], [-60000.0]], dtype=torch.float16))
    return norm.running_var.item()


def main() -> None:
    """Prints a line for each run."""
    torch.set_num_threads(1)
    runs = {
        "overflow in the backward pass": train(2.0**20, None),
        "overflow in the forward pass": train(2.0**8, 10),
        "... statistics restored after a skip": train(2.0**8, 10, restore=True),
        "... first layer in float32": train(2.0**8, 10, first_in_float32=True),
    }
    for name, run in runs.items():
        mean = ", ".join(f"{value:g}" for value in run.running_mean)
        print(f"{name}: applied {run.applied}, skipped {run.skipped}, batches tracked {run.batches_tracked}")
        print(f"  running mean [{mean}], finite: {run.statistics_finite}, evaluation finite: {run.evaluation_finite}")
    for dtype in (torch.float16, torch.float32):
        print(f"running variance of +-60000, BatchNorm in {dtype}: {running_variance(dtype):g}")


if __name__ == "__main__":
    main()
