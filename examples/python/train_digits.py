"""Trains one model on handwritten digits four ways, in fp32 and in fp16, and compares the results.

`train_digits.py --output DIRECTORY` fails unless torch's scaler and ours end with the same bits.
"""

import argparse
import dataclasses
import os
import pathlib
import sys

import torch
from digits_data import Digits, load_digits, write_digits
from digits_report import Step, plot_run, print_table, write_scale_trace
from torch import nn
from tqdm import tqdm

import ampscaler

EPOCHS = 20
BATCH_SIZE = 64
SEED = 0

# The loss is multiplied by this in all four runs. It stands for a large model, whose loss is a
# mean over very many elements: then most gradients are below 6e-8 and become zero in fp16,
# unless they are scaled.
LOSS_WEIGHT = 2.0**-16

# A first scale that is too large, and one that soon grows again: the demo shows both directions.
# examples/cpp/train_digits.cpp has the same values.
INIT_SCALE = 2.0**40
GROWTH_INTERVAL = 40


@dataclasses.dataclass
class Run:
    """A finished training."""

    name: str
    accuracy: float
    steps: list[Step]
    weights: list[torch.Tensor]


def make_model() -> nn.Module:
    """Linear layers only: fp16 convolutions are slow on a CPU without fp16 arithmetic."""
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


def make_batches(train_count: int) -> list[torch.Tensor]:
    """Row numbers of every batch of every epoch, the same for each run."""
    generator = torch.Generator().manual_seed(SEED)
    orders = [torch.randperm(train_count, generator=generator) for _ in range(EPOCHS)]
    batches = [batch for order in orders for batch in order.split(BATCH_SIZE)]
    return [batch for batch in batches if len(batch) == BATCH_SIZE]


def measure_accuracy(model: nn.Module, digits: Digits) -> float:
    """The share of test pictures that the model names correctly."""
    with torch.no_grad():
        guesses = model(digits.test_images).argmax(dim=1)
    return (guesses == digits.test_labels).float().mean().item()


def train(name: str, digits: Digits, device: str, half: bool, scaler: torch.amp.GradScaler) -> Run:
    """Trains from the one seed. Nothing here depends on which scaler it is, or whether it is on."""
    torch.manual_seed(SEED)
    model = make_model().to(device)
    # Adam divides by the size of the gradients. LOSS_WEIGHT cancels out if eps is far below them.
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, eps=1e-12)
    steps = []
    for batch in tqdm(make_batches(len(digits.train_labels)), desc=f"{name:<22}", unit="step"):
        images, labels = digits.train_images[batch], digits.train_labels[batch]
        optimizer.zero_grad()
        with torch.autocast(device, torch.float16, enabled=half):
            loss = nn.functional.cross_entropy(model(images), labels)
        scale = scaler.get_scale()
        scaler.scale(loss * LOSS_WEIGHT).backward()
        scaler.step(optimizer)
        scaler.update()
        steps.append(Step(loss.item(), scale, skipped=scaler.get_scale() < scale))
    weights = [parameter.detach() for parameter in model.parameters()]
    return Run(name, measure_accuracy(model, digits), steps, weights)


def train_four_ways(digits: Digits, device: str) -> list[Run]:
    """The same model without and with fp16, without a scaler, with torch's and with ours."""
    settings = {"init_scale": INIT_SCALE, "growth_interval": GROWTH_INTERVAL}
    off = torch.amp.GradScaler(device, enabled=False)
    torchs = torch.amp.GradScaler(device, **settings)
    ours = ampscaler.GradScaler(device, **settings)
    return [
        train("fp32", digits, device, half=False, scaler=off),
        train("fp16 without scaling", digits, device, half=True, scaler=off),
        train("fp16, torch's scaler", digits, device, half=True, scaler=torchs),
        train("fp16, ampscaler", digits, device, half=True, scaler=ours),
    ]


def check_runs(with_torch: Run, with_ours: Run) -> None:
    """Ends the program unless the weights are equal bit for bit and a step was skipped."""
    pairs = zip(with_torch.weights, with_ours.weights, strict=True)
    if not all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in pairs):
        sys.exit("train_digits: torch's scaler and ampscaler ended with different weights.")
    if not any(step.skipped for step in with_ours.steps):
        sys.exit("train_digits: no gradient overflowed, so the demo showed no skipped step.")
    print("\ntorch's scaler and ampscaler ended with bit-identical weights.")


def make_reproducible() -> None:
    """Equal runs give equal bits from here on."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only so
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # the model is tiny: more threads would mostly wait for each other


def main() -> None:
    """Trains, prints the table and writes digits.csv, scale_trace.csv and digits.png."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, required=True, help="folder for the files")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    make_reproducible()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    digits = load_digits()
    write_digits(output / "digits.csv", digits)
    runs = train_four_ways(digits.to(device), device)
    ours = runs[-1]
    write_scale_trace(output / "scale_trace.csv", ours.steps)
    plot_run(output / "digits.png", "Digits in fp16 with ampscaler.GradScaler", ours.steps)
    print(f"\nPython, trained on {device}:")
    print_table([(run.name, run.accuracy, run.steps) for run in runs])
    check_runs(with_torch=runs[-2], with_ours=ours)
    print(f"Loss and scale over the steps: {output / 'digits.png'}")


if __name__ == "__main__":
    main()
