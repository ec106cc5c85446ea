"""Runs steps as programs with a limit each, and writes down what came of them after every one.

A step is a command. Its exit code is 0 if all is well and SKIPPED_CODE if it cannot run here; what it has measured it
writes as JSON lines to the file named by its environment variable GPU_CHECK_MEASURED, so that a step that is stopped
leaves what it had. Nothing here needs torch.
"""

import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

SKIPPED_CODE = 77
MEASURED = "GPU_CHECK_MEASURED"
# The key of a measured line about an item that the step could not check on this machine.
NOT_CHECKED = "not_checked"
PASSED, FAILED, TIMED_OUT, SKIPPED, NOT_RUN = "passed", "FAILED", "TIMED OUT", "skipped", "not run"


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
    """What came of a step. `said` is the end of what it printed."""

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


def read_lines(file: pathlib.Path) -> list[dict[str, object]]:
    """The JSON lines of a file; a last one that was cut off is left out."""
    found = []
    for line in file.read_text(errors="replace").splitlines() if file.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found


def stop(process: subprocess.Popen[bytes]) -> None:
    """The step and all that it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_step(step: Step, limit: float, folder: pathlib.Path) -> Result:
    """Runs one step; its output goes to `folder`/NAME.log."""
    log, measured = folder / f"{step.name}.log", folder / f"{step.name}.jsonl"
    measured.unlink(missing_ok=True)
    environment = {**os.environ, MEASURED: str(measured)}
    begin = time.monotonic()
    status = FAILED
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                step.command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
            try:
                code = process.wait(timeout=limit)
                status = PASSED if code == 0 else SKIPPED if code == SKIPPED_CODE else FAILED
            except subprocess.TimeoutExpired:
                status = TIMED_OUT
            except KeyboardInterrupt:
                stop(process)
                raise
            if status == TIMED_OUT:
                stop(process)
    except OSError as error:
        log.write_text(f"{step.command[0]}: {error}\n")
    said = log.read_text(errors="replace").splitlines()[-20:]
    return Result(step.name, status, round(time.monotonic() - begin, 1), limit, said, read_lines(measured))


def missing_need(step: Step, results: Sequence[Result]) -> str | None:
    """The step that must have passed, and has not."""
    passed = {result.name for result in results if result.status == PASSED}
    return next((need for need in step.needs if need not in passed), None)


def write_results(file: pathlib.Path, facts: dict[str, object], results: Sequence[Result]) -> None:
    """Replaces the file in one go, so that there is always a whole one."""
    record = {"schema": "gpu_check/1", "facts": facts, "steps": [asdict(result) for result in results]}
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    partial.replace(file)


def run_steps(
    steps: Sequence[Step],
    folder: pathlib.Path,
    facts: dict[str, object],
    limit: float,
    report: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """All steps in order, within `limit` seconds together; the file result.json is whole after each."""
    begin = time.monotonic()
    results: list[Result] = []
    for step in steps:
        left = limit - (time.monotonic() - begin)
        need = missing_need(step, results)
        if need is not None:
            result = Result(step.name, NOT_RUN, said=[f"the step {need} has not passed"])
        elif left <= 0:
            result = Result(step.name, NOT_RUN, said=[f"the {limit:.0f} s of the whole check are over"])
        else:
            result = run_step(step, min(step.limit, left), folder)
        results.append(result)
        write_results(folder / "result.json", facts, results)
        report(result)
    return results


def is_good(steps: Sequence[Step], results: Sequence[Result]) -> bool:
    """Whether every step about correctness has passed, or could not run for want of a tool."""
    deciding = {step.name for step in steps if step.is_correctness}
    return all(result.status in (PASSED, SKIPPED) for result in results if result.name in deciding)


def verdict(steps: Sequence[Step], results: Sequence[Result]) -> str:
    """In one line what the exit code stands for, and what it does not tell."""
    deciding = {step.name for step in steps if step.is_correctness}
    bad = [result.name for result in results if result.name in deciding and result.status not in (PASSED, SKIPPED)]
    skipped = [result.name for result in results if result.status == SKIPPED]
    parts = ["correctness: " + (", ".join(bad) + " did not pass" if bad else "no step failed")]
    parts += [f"skipped: {', '.join(skipped)}"] if skipped else []
    missing = [item for result in results for item in result.missing()]
    parts += [f"not checked: {'; '.join(missing)}"] if missing else []
    return "; ".join(parts)


def table(steps: Sequence[Step], results: Sequence[Result]) -> str:
    """A line per step, then what the steps have settled."""
    lines = [f"{'step':<14}{'verdict':<11}{'s':>7}{'limit':>7}  about"]
    by_name = {result.name: result for result in results}
    for step in steps:
        result = by_name.get(step.name, Result(step.name, NOT_RUN))
        about = "correctness" if step.is_correctness else "speed, not judged"
        lines.append(f"{step.name:<14}{result.status:<11}{result.seconds:>7.1f}{step.limit:>7.0f}  {about}")
        if result.status not in (PASSED, NOT_RUN):
            lines += [f"    {line}" for line in result.said[-5:]]
    for step in steps:
        result = by_name.get(step.name, Result(step.name, NOT_RUN))
        missing = result.missing()
        for item in step.settles:
            mark = "x" if result.status == PASSED and item not in missing else " "
            lines.append(f"[{mark}] {item}" + (f" ({missing[item]})" if item in missing else ""))
    return "\n".join(lines)
