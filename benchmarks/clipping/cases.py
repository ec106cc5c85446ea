"""The lists of gradients that are measured, and the goal for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

KINDS = ("fused", "ordinary")

# Goals are set for this many threads, shares of the plain read for every number.
GOAL_THREADS = 2
# At most 15 % slower than a plain read.
READ_SHARE_GOAL = 1 / 1.15

Tensors = Sequence[tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True)
class Case:
    name: str
    tensors: Tensors
    fused_goal: float
    ordinary_goal: float
    is_large: bool = False
    reads_as_one: bool = False  # beside it, one tensor with as many bytes is read

    @property
    def bytes(self) -> int:
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.tensors)

    def ratio_goal(self, kind: str, threads: int) -> float | None:
        if threads != GOAL_THREADS:
            return None
        return self.fused_goal if kind == "fused" else self.ordinary_goal

    def read_share_goal(self, kind: str) -> float | None:
        return READ_SHARE_GOAL if self.is_large and kind == "fused" else None


def gpt2_shapes() -> list[tuple[int, ...]]:
    """The parameters of GPT-2 small, 124,439,808 elements in 148 tensors; the output layer is the embedding."""
    width, vocabulary, positions, layers = 768, 50257, 1024, 12
    norm = [(width,), (width,)]
    attention = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    perceptron = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(vocabulary, width), (positions, width), *layers * [*norm, *attention, *norm, *perceptron], *norm]


def uniform(count: int, size: int, dtype: torch.dtype) -> Tensors:
    return [((size,), dtype)] * count


def mixed() -> Tensors:
    """5,000 tensors, fp32 and bf16 in turn, 2 to 1,331 elements in a fixed disorder; 10 MB in all."""
    dtypes = (torch.float32, torch.bfloat16)
    return [((2 + (index * 523) % 1330,), dtypes[index % 2]) for index in range(5000)]


def all_cases() -> list[Case]:
    one = 64 * 1024 * 1024
    gpt2 = gpt2_shapes()
    return [
        Case("64 Mi fp32", uniform(1, one, torch.float32), 3.5, 2.2, is_large=True),
        Case("GPT-2 fp32", [(shape, torch.float32) for shape in gpt2], 3, 2, is_large=True),
        Case("64 Mi bf16", uniform(1, one, torch.bfloat16), 4.5, 2, is_large=True),
        Case("GPT-2 bf16", [(shape, torch.bfloat16) for shape in gpt2], 4.5, 2, is_large=True),
        Case("1,000 x 64 fp32", uniform(1000, 64, torch.float32), 25, 20),
        Case("1,000 x 4,096 fp32", uniform(1000, 4096, torch.float32), 12, 7, reads_as_one=True),
        Case("5,000 mixed", mixed(), 20, 12),
    ]


def shrunk(case: Case) -> Case:
    """The same in miniature, for a smoke test."""
    tensors = [((min(math.prod(shape), 4096),), dtype) for shape, dtype in case.tensors[:20]]
    return replace(case, tensors=tensors)
