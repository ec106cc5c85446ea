"""Runs steps as programs with a limit each, and writes down what came of them after every one.

A step is a command. Its exit code is 0 if all is well and SKIPPED_CODE if it cannot run here; what it has measured it
writes as JSON lines to the file named by its environment variable GPU_CHECK_MEASURED, so that a step that is stopped
leaves what it had. The first line of that file are the facts about the machine. Nothing here needs torch.
"""

import contextlib
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from process import Interrupted, Signals, TimedOut, run, usable_environment
from reasons import worth_keeping

SKIPPED_CODE = 77
MEASURED = "GPU_CHECK_MEASURED"
# The key of a measured line about an item that the step could not check on this machine.
NOT_CHECKED = "not_checked"
FACTS = "facts"
PASSED, FAILED, TIMED_OUT, SKIPPED, NOT_RUN = "passed", "FAILED", "TIMED OUT", "skipped", "not run"
INTERRUPTED = "STOPPED"
# Of a file that a step has written, so much is read from its beginning and from its end.
READ_BYTES = 4 << 20


@dataclass(frozen=True)
class Step:
    """`is_correctness`: its failure is one of the whole check. `needs`: steps that must have passed.

    `settles`: what docs/gpu.md says that only a GPU can tell, and this step does.
    """

    name: str
    limit: float
    command: tuple[str, ...]
    is_correctness: bool
    settles: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


@dataclass
class Result:
    """What came of a step. `said`: the lines about errors among what it printed, then the last ones."""

    name: str
    status: str
    seconds: float = 0.0
    limit: float = 0.0
    said: list[str] = field(default_factory=list)
    measured: list[dict[str, object]] = field(default_factory=list)

    def missing(self) -> dict[str, str]:
        """The items that the step could not check here, and why not."""
        found = [line for line in self.measured if NOT_CHECKED in line]
        return {str(line[NOT_CHECKED]): str(line.get("why")) for line in found}


def as_json(value: object) -> object:
    """The same, but JSON has no NaN and no infinity: as words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    return value


def read_text(file: pathlib.Path) -> str:
    """A step that prints without end must not fill the memory here."""
    with file.open("rb") as opened:
        beginning = opened.read(READ_BYTES)
        size = os.fstat(opened.fileno()).st_size
        if size <= 2 * READ_BYTES:
            return (beginning + opened.read(READ_BYTES)).decode(errors="replace")
        opened.seek(size - READ_BYTES)
        return beginning.decode(errors="replace") + "\n...\n" + opened.read(READ_BYTES).decode(errors="replace")


def read_lines(file: pathlib.Path) -> list[dict[str, object]]:
    """The JSON objects of a file, one a line; others, such as a last one that was cut off, are left out."""
    found = []
    for line in read_text(file).splitlines() if file.exists() else []:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def step_files(step: Step, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """What it prints, and what it measures."""
    return folder / f"{step.name}.log", folder / f"{step.name}.jsonl"


def remove_old(steps: Sequence[Step], folder: pathlib.Path) -> None:
    """What an earlier run has left of the same steps. What cannot be removed, its step will not be able to write."""
    for step in steps:
        for file in step_files(step, folder):
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)


def run_command(step: Step, limit: float, files: tuple[pathlib.Path, pathlib.Path], signals: Signals) -> str:
    """The step's status. Raises OSError if program or log cannot be opened."""
    environment = usable_environment({**os.environ, MEASURED: str(files[1])})
    with files[0].open("wb") as output:
        try:
            code = run(step.command, limit, signals, environment, output)
        except TimedOut:
            return TIMED_OUT
        except Interrupted:
            return INTERRUPTED
    return PASSED if code == 0 else SKIPPED if code == SKIPPED_CODE else FAILED


def run_step(
    step: Step, limit: float, folder: pathlib.Path, facts: Mapping[str, object], signals: Signals | None = None
) -> Result:
    """Runs one step; its output goes to `folder`/NAME.log. Trouble with files is the step's failure."""
    log, measured = files = step_files(step, folder)
    result = Result(step.name, FAILED, limit=limit)
    begin = time.monotonic()
    errors = []
    try:
        measured.write_text(json.dumps({FACTS: as_json(facts)}) + "\n")
        result.status = run_command(step, limit, files, signals or Signals())
    except OSError as error:
        errors.append(f"error: {error}")
    result.seconds = round(time.monotonic() - begin, 1)
    try:
        result.said = worth_keeping(read_text(log).splitlines()) if log.exists() else []
        result.measured = [line for line in read_lines(measured) if FACTS not in line]
    except OSError as error:
        errors.append(f"error: {error}")
        result.status = FAILED if result.status == PASSED else result.status
    if result.status == INTERRUPTED and signals is not None and signals.received is not None:
        errors.append(f"stopped by {signals.received.name}")
    result.said = errors + result.said
    return result


def missing_need(step: Step, results: Sequence[Result]) -> str | None:
    """The step that must have passed, and has not."""
    passed = {result.name for result in results if result.status == PASSED}
    return next((need for need in step.needs if need not in passed), None)


def write_results(file: pathlib.Path, facts: Mapping[str, object], results: Sequence[Result]) -> str | None:
    """Replaces the file in one go, so that there is always a whole one. Returns why it could not."""
    record = {"schema": "gpu_check/1", FACTS: facts, "steps": [asdict(result) for result in results]}
    partial = file.with_suffix(".partial")
    try:
        partial.write_text(json.dumps(as_json(record), indent=1, allow_nan=False) + "\n")
        partial.replace(file)
    except OSError as error:
        return str(error)
    return None


def result_of(
    step: Step,
    results: Sequence[Result],
    left: float,
    folder: pathlib.Path,
    facts: Mapping[str, object],
    signals: Signals,
) -> Result:
    """Of a step that is to run with `left` seconds for all that remain."""
    need = missing_need(step, results)
    if signals.received is not None:
        return Result(step.name, NOT_RUN, said=[f"{signals.received.name} came before"])
    if need is not None:
        return Result(step.name, NOT_RUN, said=[f"the step {need} has not passed"])
    if left <= 0:
        return Result(step.name, NOT_RUN, said=["the time of the whole check is over"])
    return run_step(step, min(step.limit, left), folder, facts, signals)


def run_steps(
    steps: Sequence[Step],
    folder: pathlib.Path,
    facts: Mapping[str, object],
    limit: float,
    report: Callable[[Result], None] = lambda result: None,
    signals: Signals | None = None,
    results: list[Result] | None = None,
) -> list[Result]:
    """All steps in order, within `limit` seconds together; the file result.json is whole after each.

    `results`: the list to fill, for a caller that wants what there is even if this raises.
    """
    begin = time.monotonic()
    found = [] if results is None else results
    signals = signals or Signals()
    remove_old(steps, folder)
    write_results(folder / "result.json", facts, found)
    for step in steps:
        result = result_of(step, found, limit - (time.monotonic() - begin), folder, facts, signals)
        found.append(result)
        write_results(folder / "result.json", facts, found)
        report(result)
    return found
