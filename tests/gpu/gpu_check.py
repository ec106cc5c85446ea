"""Settles on a machine with a GPU what the tests on the CPU cannot: `make gpu-check`, at most 10 minutes, offline.

    python tests/gpu/gpu_check.py [--output build/gpu_check] [--step NAME ...]

Builds the library for the GPU that is there, then runs the steps below in order: correctness first, then speed. A line
is printed after each step; result.json in the output folder is whole after each, and the logs are beside it. The last
line names the steps that could not run here, which are no failures. Exit codes:

    0    no step about correctness has failed
    1    one has, or has not run
    2    wrong arguments
    3    torch sees no GPU
    4    torch could not be asked: it is not there, fails, or does not answer within a minute
    5    no step has failed, but result.json could not be written
    130, 143, 129    stopped by SIGINT, SIGTERM, SIGHUP; the table is of what was done by then

Needs torch, nvcc, cmake, ninja or make, a C++ compiler; docs/gpu.md tells more.
"""

import argparse
import io
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence

import process
from common import HERE, ROOT
from runner import Result, Step, run_steps, write_results
from table import is_good, table, verdict

GOOD, BAD, WRONG_ARGUMENTS, NO_GPU, NOT_ASKED, NOT_WRITTEN = range(6)

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
    more = {
        "build": ("--arch", facts.get("arch")),
        "passes": ("--roofline", output / "roofline.jsonl", "--gpu", facts.get("gpu")),
    }
    steps = []
    for name, limit, is_correctness, settles in STEPS:
        arguments = ("--build", output / "build", *more.get(name, ()))
        command = (sys.executable, str(HERE / f"step_{name}.py"), *map(str, arguments))
        steps.append(Step(name, limit, command, is_correctness, settles, () if name == "build" else ("build",)))
    return steps


def parse_facts(printed: str) -> dict[str, object] | None:
    """The line with them: torch may print others."""
    for line in reversed(printed.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "gpu" in found:
            return found
    return None


def find_facts(signals: process.Signals) -> dict[str, object]:
    """Of a process of its own: a broken driver may not take this one along. `error` says why torch did not answer."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        command = (sys.executable, "-c", FACTS)
        try:
            code = process.run(command, FACTS_LIMIT, signals, os.environ, output, errors)
        except process.TimedOut:
            return {"gpu": None, "error": f"it did not answer within {FACTS_LIMIT:.0f} s"}
        except process.Interrupted as interrupted:
            return {"gpu": None, "error": str(interrupted)}
        output.seek(0)
        errors.seek(0)
        facts = parse_facts(output.read().decode(errors="replace"))
        said = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    if code == 0 and facts is not None:
        return facts
    return {"gpu": None, "error": said[-1].strip() if said else f"it said nothing, and ended with exit code {code}"}


def say(text: str) -> None:
    """Goes on without a terminal: it may be closed by now, and the results are in a file too."""
    try:
        print(text, flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def report(result: Result) -> None:
    say(f"{result.name}: {result.status} after {result.seconds:.1f} s")


def check(
    steps: Sequence[Step], output: pathlib.Path, facts: dict[str, object], end: float, signals: process.Signals
) -> int:
    """Runs the steps until `end`, and prints the table whatever becomes of them. Returns the exit code."""
    results: list[Result] = []
    file = output / "result.json"
    try:
        run_steps(steps, output, facts, end - time.monotonic(), report, signals, results)
    finally:
        trouble = write_results(file, facts, results)
        say(table(steps, results))
        say(f"results: {file}" if trouble is None else f"the results could not be written: {trouble}")
        say(verdict(steps, results))
    if not is_good(steps, results):
        return BAD
    return GOOD if trouble is None else NOT_WRITTEN


def explain(facts: dict[str, object]) -> int:
    """Why nothing was checked. Returns the exit code."""
    nothing = "Nothing was checked; docs/gpu.md says what is proven without a GPU."
    if "error" in facts:
        say(f"could not ask torch: {facts['error']}. {nothing}")
        return NOT_ASKED
    say(f"no GPU on this machine: torch {facts['torch']} (CUDA {facts['cuda']}) sees no CUDA device. {nothing}")
    return NO_GPU


def parse(arguments: Sequence[str] | None) -> tuple[pathlib.Path, set[str]]:
    """The output folder, which is there then, and the names of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name, *_ in STEPS]
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build/gpu_check")
    parser.add_argument("--step", action="append", choices=names, help="only this step, and the build; repeatable")
    options = parser.parse_args(arguments)
    output = options.output.resolve()
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"argument --output: {error}")
    return output, {"build", *(options.step or names)}


def run(output: pathlib.Path, chosen: set[str], end: float, signals: process.Signals) -> int:
    """Everything after the arguments. Returns the exit code if no signal comes."""
    write_results(output / "result.json", {}, [])  # that of an earlier run is none of this one
    facts = find_facts(signals)
    write_results(output / "result.json", facts, [])
    if not facts["gpu"]:
        return explain(facts)
    say(", ".join(f"{name} {value}" for name, value in facts.items()))
    steps = [step for step in all_steps(output, facts) if step.name in chosen]
    return check(steps, output, facts, end, signals)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code that the module's text explains."""
    end = time.monotonic() + LIMIT - process.STOP_LIMIT  # the last step may take that long to stop
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # logs have characters that a terminal may lack
    output, chosen = parse(arguments)
    with process.Signals() as signals:
        code = run(output, chosen, end, signals)
        return code if signals.received is None else 128 + signals.received


if __name__ == "__main__":
    sys.exit(main())
