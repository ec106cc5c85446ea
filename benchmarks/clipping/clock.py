"""Contenders taking turns on lists of gradients that no cache still holds."""

from __future__ import annotations

import gc
import math
import pathlib
import statistics
import time
from dataclasses import dataclass

import torch

from clipping.cases import Case
from clipping.contenders import Contender, Gradients, check, contenders

FEWEST = 7
MOST = 1000
WARM_UPS = 2

# Smaller lists are measured in the cache.
ROTATED_BYTES = 64 * 1024 * 1024


def last_level_cache_bytes() -> int:
    """Of the whole processor; a virtual machine may have a part of it. 64 MiB if the kernel does not say."""
    sizes = pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    found = [int(size.read_text().strip().rstrip("K")) * 1024 for size in sizes]
    return max(found, default=64 * 1024 * 1024)


def copies_of(case: Case, contender_count: int) -> int:
    """So many that others push a list out of the cache before its next visit, and that each contender gets to all."""
    if case.bytes < ROTATED_BYTES:
        return 1
    copies = 2 + last_level_cache_bytes() // case.bytes
    while math.gcd(copies, contender_count) > 1:
        copies += 1
    return copies


@dataclass
class Cell:
    """What was measured for a case, a kind of optimizer and a number of threads."""

    case: Case
    kind: str
    threads: int
    copies: int
    seconds: dict[str, list[float]]


def merge_free_chunks() -> None:
    """glibc merges the small chunks that were freed when a large one is asked for next, whoever that does.

    torch's recipe frees thousands. Who comes after it shall not pay for them, nor torch for what others leave.
    """
    bytearray(64 * 1024)


def timed(contender: Contender, gradients: Gradients) -> float:
    contender.prepare(gradients, gradients.next_scale() if contender.writes else 2.0)
    merge_free_chunks()
    begin = time.perf_counter()
    contender.run(gradients)
    return time.perf_counter() - begin


class Problem:
    """A case and a kind of optimizer: its gradients, checked once, to be measured with any number of threads."""

    def __init__(self, case: Case, kind: str) -> None:
        self._case, self._kind = case, kind
        self._contenders = contenders(case, kind)
        self._lists = [Gradients(case, kind) for _ in range(copies_of(case, len(self._contenders)))]
        check(self._lists[0], kind, self._contenders)

    def measure(self, threads: int, budget: float) -> Cell:
        """Rounds for `budget` seconds, but at least FEWEST of them."""
        torch.set_num_threads(threads)
        seconds: dict[str, list[float]] = {name: [] for name in self._contenders}
        turn = 0
        gc.collect()
        gc.disable()
        begin = time.perf_counter()
        for number in range(WARM_UPS + MOST):
            for name, contender in self._contenders.items():
                elapsed = timed(contender, self._lists[turn % len(self._lists)])
                turn += 1
                if number >= WARM_UPS:
                    seconds[name].append(elapsed)
            if number + 1 >= WARM_UPS + FEWEST and time.perf_counter() - begin > budget:
                break
        gc.enable()
        return Cell(self._case, self._kind, threads, len(self._lists), seconds)


def summary(seconds: list[float]) -> dict[str, float]:
    """In milliseconds."""
    return {"median": 1e3 * statistics.median(seconds), "best": 1e3 * min(seconds)}
