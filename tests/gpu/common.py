"""What the steps share: the library that was built, gradients, measurements, checks that are counted."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from runner import MEASURED, NOT_CHECKED, as_json

if TYPE_CHECKING:
    import torch

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def nvcc_of(build: pathlib.Path) -> pathlib.Path | None:
    """The one that CMake has found, if it has configured a build with CUDA. It is not in the cache of CMake."""
    for file in build.glob("CMakeFiles/*/CMakeCUDACompiler.cmake"):
        found = re.search(r'^set\(CMAKE_CUDA_COMPILER "(.+)"\)$', file.read_text(), re.M)
        if found:
            return pathlib.Path(found.group(1))
    return None


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments; and from here on `import ampscaler` finds what was built, unless another is on PYTHONPATH."""
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda", help="cpu: to try the step without a GPU")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    options = parser.parse_args()
    stage = options.build / "stage"
    if stage.is_dir():
        sys.path.insert(0, str(stage))
    return options


def measured(**values: object) -> None:
    """One result; it is kept even if the step is stopped later."""
    line = json.dumps(as_json(values), allow_nan=False)
    print(line, flush=True)
    if MEASURED in os.environ:
        with open(os.environ[MEASURED], "a") as file:
            file.write(line + "\n")


def not_checked(item: str, why: str) -> None:
    """An item of the step that could not be checked here: its box stays open though the step passes."""
    measured(**{NOT_CHECKED: item, "why": why})


class Checks:
    """Goes on after a failure, and tells how many there were."""

    def __init__(self) -> None:
        self.count = 0
        self.failures: list[str] = []

    def expect(self, holds: object, what: str) -> None:
        self.count += 1
        if not bool(holds):
            self.failures.append(what)
            print(f"WRONG: {what}", flush=True)

    def verdict(self) -> int:
        """The exit code."""
        measured(what="checks", count=self.count, failures=self.failures[:50], failed=len(self.failures))
        print(f"{self.count} checks, {len(self.failures)} failures", flush=True)
        return 1 if self.failures or self.count == 0 else 0


def gradients(sizes: list[int], dtype: torch.dtype, device: str, offset: int = 0) -> list[torch.Tensor]:
    """Random tensors; each begins `offset` elements after the beginning of its memory."""
    import torch

    return [torch.randn(size + offset, device=device).to(dtype)[offset:] for size in sizes]


def timed(call: Callable[[], object], device: str, seconds: float = 0.4, least: int = 5) -> Iterator[float]:
    """Milliseconds of the device, or of the host for the CPU, by repetition, after a warm-up."""
    import torch

    call()
    end = time.monotonic() + seconds
    done = 0
    while done < least or time.monotonic() < end:
        if device == "cuda":
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            call()
            last.record()
            last.synchronize()
            yield first.elapsed_time(last)
        else:
            begin = time.perf_counter()
            call()
            yield (time.perf_counter() - begin) * 1e3
        done += 1


def median(times: Iterator[float]) -> float:
    """Rounded to 0.1 microseconds."""
    ordered = sorted(times)
    return round(ordered[len(ordered) // 2], 4)
