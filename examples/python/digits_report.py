"""What the digits demo shows of its runs: a table, the scale trace as CSV, and a plot."""

import csv
import dataclasses
import math
import pathlib

import matplotlib

matplotlib.use("Agg")  # no window: the plot goes to a file
from matplotlib import pyplot


@dataclasses.dataclass
class Step:
    """One training step: its loss, the scale that multiplied it, and whether it was skipped."""

    loss: float
    scale: float
    skipped: bool


def power_of_two(scale: float) -> str:
    """Writes a scale as 2^n, which is easier to compare than its digits."""
    return f"2^{math.log2(scale):g}"


def print_table(rows: list[tuple[str, float, list[Step]]]) -> None:
    """Prints one line for each (name, accuracy, steps)."""
    titles = ("accuracy", "last loss", "applied", "skipped", "first scale", "last scale")
    print(f"{'run':<22}" + "".join(f"{title:>12}" for title in titles))
    for name, accuracy, steps in rows:
        skipped = sum(step.skipped for step in steps)
        cells = (
            f"{accuracy:.4f}",
            f"{steps[-1].loss:.4f}",
            len(steps) - skipped,
            skipped,
            power_of_two(steps[0].scale),
            power_of_two(steps[-1].scale),
        )
        print(f"{name:<22}" + "".join(f"{cell:>12}" for cell in cells))


def write_scale_trace(path: pathlib.Path, steps: list[Step]) -> None:
    """Writes one line per step; the C++ program replays the column `skipped`."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "loss", "scale", "skipped"])
        for index, step in enumerate(steps):
            writer.writerow([index, step.loss, step.scale, int(step.skipped)])


def _mark_skips(axes: pyplot.Axes, steps: list[Step], values: list[float]) -> None:
    skips = [index for index, step in enumerate(steps) if step.skipped]
    axes.scatter(
        skips,
        [values[index] for index in skips],
        marker="x",
        color="tab:red",
        zorder=3,
        label="skipped: a gradient overflowed",
    )


def plot_run(path: pathlib.Path, title: str, steps: list[Step]) -> None:
    """Draws loss and scale over the steps, one above the other, skips marked."""
    losses = [step.loss for step in steps]
    scales = [step.scale for step in steps]
    figure, (loss_axes, scale_axes) = pyplot.subplots(2, sharex=True, figsize=(9, 6), layout="constrained")
    loss_axes.plot(losses, color="tab:blue", linewidth=1, label="loss of the batch")
    loss_axes.set(title=title, ylabel="loss (log)", yscale="log")
    scale_axes.step(range(len(scales)), scales, where="post", color="tab:green", label="scale")
    scale_axes.set(xlabel="step", ylabel="scale (log)")
    scale_axes.set_yscale("log", base=2)
    for axes, values in ((loss_axes, losses), (scale_axes, scales)):
        _mark_skips(axes, steps, values)
        axes.grid(alpha=0.3)
        axes.legend(loc="upper right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
