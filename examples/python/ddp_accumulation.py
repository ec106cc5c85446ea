"""Gradient accumulation under DistributedDataParallel, with an overflow in one micro-batch on one rank.

Starts two processes on this machine's CPU. Both must skip the window together, and go on with equal scale and weights.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ampscaler

RANKS = 2
WINDOWS = 6
MICRO_BATCHES = 4  # of a window; the gradients travel between the ranks at the last one only

# Where the inputs are so large that they are inf in fp16: the third window, its second micro-batch, on rank 1.
BAD_STEP = 2 * MICRO_BATCHES + 1
BAD_RANK = 1


def make_micro_batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Other numbers on each rank, the same in each run."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    inputs = torch.randn(16, 8, generator=generator)
    targets = inputs.sum(dim=1, keepdim=True)
    return (inputs * 1e6 if (step, rank) == (BAD_STEP, BAD_RANK) else inputs), targets


def train(rank: int) -> tuple[list[tuple], nn.Module]:
    """A row for each window, as in the table, and the trained model."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    manager = ampscaler.RobustAMPManager(
        model, optimizer, init_scale=1024, growth_interval=2, accumulation_steps=MICRO_BATCHES
    )
    rows = []
    for step in range(WINDOWS * MICRO_BATCHES):
        inputs, targets = make_micro_batch(step, rank)
        manager.training_step(inputs, targets, nn.functional.mse_loss, step)
        if (step + 1) % MICRO_BATCHES == 0:
            bad_losses = sum(record["step"] > step - MICRO_BATCHES for record in manager.nonfinite_losses)
            rows.append((step, rank, bad_losses, manager.scaler.get_scale(), not manager.last_step.applied()))
    return rows, model


def print_table(rows: list[tuple]) -> None:
    """Windows in order, and the ranks of each side by side."""
    print(f"{'step':>5} {'rank':>5} {'bad losses':>11} {'scale':>7}  skipped")
    for step, rank, bad_losses, scale, skipped in sorted(rows):
        print(f"{step:>5} {rank:>5} {bad_losses:>11} {scale:>7g}  {'yes' if skipped else 'no'}")


def report(gathered: list[tuple[list[tuple], list[torch.Tensor]]]) -> None:
    """Prints the table; ends the program unless all ranks did the same and hold the same bits."""
    print_table([row for rows, _ in gathered for row in rows])
    decisions = [[(scale, skipped) for _, _, _, scale, skipped in rows] for rows, _ in gathered]
    weights = [[tensor.view(torch.int32) for tensor in tensors] for _, tensors in gathered]
    if any(decision != decisions[0] for decision in decisions):
        sys.exit("ddp_accumulation: the ranks decided differently.")
    if not all(torch.equal(a, b) for other in weights for a, b in zip(weights[0], other, strict=True)):
        sys.exit("ddp_accumulation: the ranks hold different weights.")
    print("The ranks skipped together, and hold equal scales and bit-equal weights.")


def run_rank(rank: int, folder: str) -> None:
    """The program of one process; the ranks meet over a file in `folder`."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this machine
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    rows, model = train(rank)
    gathered = [None] * RANKS
    dist.all_gather_object(gathered, (rows, [parameter.detach() for parameter in model.parameters()]))
    if rank == 0:
        report(gathered)
    dist.destroy_process_group()


def main() -> None:
    """Starts the ranks and waits for them; an error of one ends all.

    Forked ranks end without taking the interpreter down. Spawned ones do take it down, while gloo's threads live on
    (destroy_process_group() does not end them), and one that then lets go of a tensor ends the process by SIGABRT.
    """
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(run_rank, (folder,), nprocs=RANKS, start_method="fork")


if __name__ == "__main__":
    main()
