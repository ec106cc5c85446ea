"""Time and peak memory of a device: events and the allocator of a GPU, a monotonic clock and the process on a CPU.

A record names which of them it used.
"""

import gc
import pathlib
import resource
import time
from typing import Any

import torch

MEBIBYTE = 2**20


class CpuMeter:
    """perf_counter, and the largest resident set of the process."""

    clock = "time.perf_counter"

    def __init__(self) -> None:
        self.memory_source = "process peak RSS since start (ru_maxrss)"

    def mark(self) -> float:
        return time.perf_counter()

    def milliseconds(self, begin: float, end: float) -> float:
        return (end - begin) * 1e3

    def reset_peak(self) -> None:
        """Linux forgets the peak when asked to; where it refuses, the peak of the whole process remains."""
        gc.collect()
        try:
            pathlib.Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return
        self.memory_source = "process peak RSS, reset before the run (VmHWM)"

    def peak_mb(self) -> float:
        if "VmHWM" not in self.memory_source:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


class CudaMeter:
    """Events on the current stream, and the peak of torch's allocator."""

    clock = "torch.cuda.Event"
    memory_source = "torch.cuda.max_memory_allocated"

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def milliseconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        end.synchronize()
        return begin.elapsed_time(end)

    def reset_peak(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def peak_mb(self) -> float:
        return torch.cuda.max_memory_allocated() / MEBIBYTE


def make_meter(device: torch.device) -> Any:
    return CudaMeter() if device.type == "cuda" else CpuMeter()
