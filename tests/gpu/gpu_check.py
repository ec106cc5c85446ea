"""Settles on a machine with a GPU what the tests on the CPU cannot: `make gpu-check`, at most 10 minutes, offline.

    python tests/gpu/gpu_check.py [--output build/gpu_check] [--step NAME ...]

Builds the library for the GPU that is there, then runs the steps below in order: correctness first, then speed. A line
is printed after each step; result.json in the output folder is whole after each, and the logs are beside it. The exit
code is 1 if a step about correctness fails, 2 if there is no GPU; the last line names the steps that could not run
here, which are no failures. Needs torch, nvcc, cmake, ninja or make, a C++
compiler; docs/gpu.md tells more.
"""

import argparse
import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from common import HERE, ROOT
from runner import Result, Step, is_good, run_steps, table, verdict

LIMIT = 600.0
FACTS_LIMIT = 60.0

FACTS = """
import json, sys, torch
facts = {"python": sys.version.split()[0], "torch": torch.__version__, "cuda": torch.version.cuda, "gpu": None}
if torch.cuda.is_available():
    found = torch.cuda.get_device_properties(0)
    facts |= {"gpu": found.name, "arch": f"{found.major}{found.minor}", "multiprocessors": found.multi_processor_count}
print(json.dumps(facts))
"""


# Name, limit in seconds, whether it is about correctness, and what it settles, as docs/gpu.md lists it.
STEPS: tuple[tuple[str, float, bool, tuple[str, ...]], ...] = (
    ("build", 120, True, ()),
    (
        "operators",
        90,
        True,
        (
            "real memory ordering: results of all kernels against the CPU and float64",
            "float64 beyond float32 in aten's CUDA operator",
            "more than 2^31 elements in one tensor",
        ),
    ),
    ("training", 60, True, ("fused optimizers with our grad_scale", "the conformance suite on CUDA")),
    ("graphs", 45, True, ("capture and replay in a CUDA graph", "two streams and two scalers at once")),
    ("sanitizer", 60, True, ("memory errors and races that compute-sanitizer sees",)),
    (
        "roofline",
        60,
        False,
        (
            "how many 16-byte loads in flight reach the memory's speed",
            "2 blocks of 512 threads or others",
            "latency of a launch by the size of its arguments",
        ),
    ),
    (
        "passes",
        90,
        False,
        ("times of the passes against torch's recipe and the roofline", "misaligned gradients at full speed"),
    ),
    (
        "launches",
        45,
        False,
        (
            "launches of each call, counted by the profiler",
            "cost of a second pass that returns at once",
            "host time per tensor",
        ),
    ),
)


def all_steps(output: pathlib.Path, facts: dict[str, object]) -> list[Step]:
    """In the order in which they run. Each is a program of its own; all but the first need what that has built."""
    more = {"build": ("--arch", facts.get("arch")), "passes": ("--roofline", output / "roofline.jsonl")}
    steps = []
    for name, limit, is_correctness, settles in STEPS:
        arguments = ("--build", output / "build", *more.get(name, ()))
        command = (sys.executable, str(HERE / f"step_{name}.py"), *map(str, arguments))
        steps.append(Step(name, limit, command, is_correctness, settles, () if name == "build" else ("build",)))
    return steps


def find_facts() -> dict[str, object]:
    """Of a process of its own: a broken driver may not take this one along."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", FACTS], capture_output=True, text=True, timeout=FACTS_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return {"gpu": None, "error": f"torch did not say within {FACTS_LIMIT:.0f} s whether there is one"}
    if done.returncode != 0:
        return {"gpu": None, "error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no torch"}
    facts = json.loads(done.stdout.splitlines()[-1])
    return dict(facts)


def report(result: Result) -> None:
    print(f"{result.name}: {result.status} after {result.seconds:.1f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if no step about correctness has failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name, *_ in STEPS]
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build/gpu_check")
    parser.add_argument("--step", action="append", choices=names, help="only this step, and the build; repeatable")
    options = parser.parse_args(arguments)
    facts = find_facts()
    if not facts["gpu"]:
        why = facts.get("error") or f"torch {facts['torch']} (CUDA {facts['cuda']}) sees no CUDA device"
        print(f"no GPU on this machine: {why}. Nothing was checked; docs/gpu.md says what is proven without one.")
        return 2
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    chosen = {"build", *(options.step or names)}
    steps = [step for step in all_steps(output, facts) if step.name in chosen]
    results = run_steps(steps, output, facts, LIMIT, report)
    print(table(steps, results))
    print(f"results: {output / 'result.json'}")
    print(verdict(steps, results))
    return 0 if is_good(steps, results) else 1


if __name__ == "__main__":
    sys.exit(main())
