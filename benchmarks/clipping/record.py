"""What is kept of a run: the JSON object that clipping/__init__.py describes."""

from __future__ import annotations

import os
import pathlib
import platform
from typing import Any

import torch
from checkout import commit

import ampscaler
from ampscaler import _C
from clipping.clock import Cell, last_level_cache_bytes, summary

SCHEMA = "clip_grad_norm/1"


def cpu_facts(key: str) -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")


def load_average() -> float:
    return round(os.getloadavg()[0], 2)


def machine() -> dict[str, Any]:
    return {
        "cpu": cpu_facts("model name") or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "last_level_cache_mib": last_level_cache_bytes() // 2**20,
    }


def software() -> dict[str, str]:
    return {
        "torch": torch.__version__,
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "ampscaler": ampscaler.__version__,
        "cpu_isa": _C.cpu_kernels(),
        "commit": commit(),
        "python": platform.python_version(),
    }


def quotient(times: dict[str, float], ours: dict[str, float]) -> dict[str, float]:
    return {key: round(times[key] / ours[key], 3) for key in times}


def met(value: dict[str, float] | None, goal: float | None) -> bool | None:
    return None if value is None or goal is None else value["median"] >= goal


def result(cell: Cell, *, judged: bool) -> dict[str, Any]:
    times = {name: summary(seconds) for name, seconds in cell.seconds.items()}
    reads = [times[name] for name in times if name.startswith("read ")]
    read = min(reads, key=lambda time: time["median"]) if reads else None
    ratio = quotient(times["torch"], times["ampscaler"])
    share = None if read is None else quotient(read, times["ampscaler"])
    ratio_goal = cell.case.ratio_goal(cell.kind, cell.threads) if judged else None
    share_goal = cell.case.read_share_goal(cell.kind) if judged else None
    shown = {"torch": times["torch"], "ampscaler": times["ampscaler"], "plain_read": read}
    return {
        "case": cell.case.name,
        "kind": cell.kind,
        "threads": cell.threads,
        "tensors": len(cell.case.tensors),
        "bytes": cell.case.bytes,
        "copies": cell.copies,
        "repetitions": len(cell.seconds["ampscaler"]),
        "milliseconds": {
            name: None if time is None else {key: float(f"{value:.4g}") for key, value in time.items()}
            for name, time in shown.items()
        },
        "ratio": ratio,
        "ratio_goal": ratio_goal,
        "ratio_met": met(ratio, ratio_goal),
        "ratio_limit": None if read is None else quotient(times["torch"], read),
        "read_share": share,
        "read_share_goal": None if share_goal is None else round(share_goal, 3),
        "read_share_met": met(share, share_goal),
    }
