"""Step passes: the three ways to check, measure and clip, and torch's recipe: times, GB/s, share of the roofline.

grad_stats                          1 read                    fused optimizers
unscale_with_stats_, scale_grads_   1 read 1 write, as much   ordinary ones; the clip does not bind, or binds
                                    again if the clip binds
grad_stats, scale_grads_            1 read, 1 read 1 write    float16 in place
torch's unscale_, clip_grad_norm_   3 reads 2 writes
"""

from __future__ import annotations

import argparse
import functools
import math
import pathlib
import sys
from collections.abc import Callable

from common import gradients, measured, median, not_checked, options_of, timed
from judge import read_roofline

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--roofline", type=pathlib.Path, help="what the step roofline has measured")
parser.add_argument("--gpu", default="", help="the name of this one; of another the roofline is no measure")
options = options_of(parser)

import torch  # noqa: E402

import ampscaler  # noqa: E402

OPS = torch.ops.ampscaler
FOUND_INF, CLIP_COEFFICIENT = (ampscaler.ops.FACTORS.index(name) for name in ("found_inf", "clip_coefficient"))

# Items of the list in docs/gpu.md.
TIMES = "times of the passes against torch's recipe and the roofline"
MISALIGNED = "misaligned gradients at full speed"


def gpt2_sizes() -> list[int]:
    """The parameters of GPT-2 small, 124M elements in 148 tensors."""
    width, vocabulary, positions = 768, 50257, 1024
    layer = [width, width, 3 * width * width, 3 * width, width * width, width]
    layer += [width, width, 4 * width * width, 4 * width, 4 * width * width, width]
    return [vocabulary * width, positions * width, *12 * layer, width, width]


def cases() -> list[tuple[str, list[int], torch.dtype, int]]:
    """(name, sizes, dtype, elements beyond an aligned address)."""
    half_billion = [500_000_000 // 300] * 300
    if options.quick:
        return [("1000 x 64", [64] * 20, torch.float32, 0), ("misaligned", [999] * 5, torch.bfloat16, 1)]
    return [
        ("1000 x 64", [64] * 1000, torch.float32, 0),
        ("1000 x 4096", [4096] * 1000, torch.float32, 0),
        ("GPT-2 124M", gpt2_sizes(), torch.float32, 0),
        ("0.5B", half_billion, torch.float32, 0),
        ("0.5B", half_billion, torch.bfloat16, 0),
        ("one tensor, 1.5B", [1_500_000_000], torch.bfloat16, 0),
        ("0.5B, 4 bytes off", half_billion, torch.float32, 1),
        ("0.5B, 2 bytes off", half_billion, torch.bfloat16, 1),
    ]


def rooflines() -> dict[str, float]:
    """The fastest of the step roofline, in GB/s; says so if there is none to compare with."""
    best, why = read_roofline(options.roofline, options.gpu) if options.roofline else ({}, "no roofline is given")
    if why is not None:
        for item in (TIMES, MISALIGNED):
            not_checked(item, why)
    return best


class Ways:
    """The calls of a list of gradients. The scale is 2 and 0.5 in turn where values are stored, so that they last."""

    def __init__(self, grads: list[torch.Tensor]) -> None:
        self.grads = grads
        self.scales = [torch.full((1,), value, device=options.device) for value in (2.0, 0.5)]
        self.factors = [torch.full((1,), value, device=options.device) for value in (0.5, 2.0)]
        self.zero = torch.zeros(1, device=options.device)
        self.one = torch.ones(1, device=options.device)
        self.turn = 0

    def _next(self) -> int:
        self.turn = 1 - self.turn
        return self.turn

    def read(self) -> object:
        return OPS.grad_stats(self.grads, self.scales[0], max_norm=1e30)

    def unscale(self) -> object:
        _, factors = OPS.unscale_with_stats_(self.grads, self.scales[self._next()], max_norm=1e30)
        return OPS.scale_grads_(self.grads, factors[CLIP_COEFFICIENT], factors[FOUND_INF])

    def unscale_and_clip(self) -> object:
        turn = self._next()
        OPS.unscale_with_stats_(self.grads, self.scales[turn], max_norm=1e30)
        return OPS.scale_grads_(self.grads, self.factors[1 - turn], self.zero)

    def read_and_scale(self) -> object:
        OPS.grad_stats(self.grads, self.scales[0], max_norm=1e30)
        return OPS.scale_grads_(self.grads, self.factors[self._next()], self.zero)

    def torch_recipe(self) -> object:
        aten = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_
        if self.grads[0].dtype == torch.bfloat16 and options.device == "cuda":
            torch._foreach_mul_(self.grads, self.one)  # aten's operator refuses bfloat16 on CUDA
        else:
            aten(self.grads, self.zero, self.one)
        total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(self.grads)))
        torch._foreach_mul_(self.grads, (1e30 / (total + 1e-6)).clamp(max=1.0))
        return total


# Name, call, bytes moved per byte of gradients, the roofline to compare with.
WAYS: tuple[tuple[str, Callable[[Ways], object], int, str], ...] = (
    ("grad_stats", Ways.read, 1, "read"),
    ("unscale_with_stats_, scale_grads_ that does not clip", Ways.unscale, 2, "read_write"),
    ("unscale_with_stats_, scale_grads_ that clips", Ways.unscale_and_clip, 4, "read_write"),
    ("grad_stats, scale_grads_", Ways.read_and_scale, 3, "read_write"),
    ("torch's unscale_, clip_grad_norm_", Ways.torch_recipe, 5, "read_write"),
)


def measure(name: str, sizes: list[int], dtype: torch.dtype, offset: int, best: dict[str, float]) -> None:
    """All ways on one list."""
    kind = str(dtype).removeprefix("torch.")
    gigabytes = math.fsum(sizes) * dtype.itemsize * 1e-9
    if options.device == "cuda" and torch.cuda.mem_get_info()[0] < 5e9 * gigabytes:
        not_checked(MISALIGNED if offset else TIMES, f"not enough memory for {name}, {kind}")
        return
    ways = Ways(gradients(sizes, dtype, options.device, offset))
    for way, call, moved, roofline in WAYS:
        time = median(timed(functools.partial(call, ways), options.device))
        rate = round(gigabytes * moved / time * 1e3, 1)
        share = round(rate / best[roofline], 3) if roofline in best else None
        measured(case=name, dtype=kind, way=way, ms=time, gb_per_s=rate, share_of_roofline=share)


def main() -> int:
    best = rooflines()
    for name, sizes, dtype, offset in cases():
        measure(name, sizes, dtype, offset, best)
    return 0


if __name__ == "__main__":
    sys.exit(main())
