"""What came of the steps, for people: a table, the boxes that it ticks, a verdict in one line."""

from collections.abc import Sequence

from reasons import most_telling
from runner import NOT_RUN, PASSED, SKIPPED, Result, Step


def is_good(steps: Sequence[Step], results: Sequence[Result]) -> bool:
    """Whether every step about correctness has passed, or could not run for want of a tool."""
    return not bad_steps(steps, results)


def bad_steps(steps: Sequence[Step], results: Sequence[Result]) -> list[str]:
    """Those about correctness that did not pass, or of which nothing is known."""
    status = {result.name: result.status for result in results}
    deciding = [step.name for step in steps if step.is_correctness]
    return [name for name in deciding if status.get(name, NOT_RUN) not in (PASSED, SKIPPED)]


def verdict(steps: Sequence[Step], results: Sequence[Result]) -> str:
    """In one line what the exit code stands for, and what it does not tell."""
    bad = bad_steps(steps, results)
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
            lines += [f"    {line[:400]}" for line in most_telling(result.said)]
    for step in steps:
        result = by_name.get(step.name, Result(step.name, NOT_RUN))
        missing = result.missing()
        for item in step.settles:
            mark = "x" if result.status == PASSED and item not in missing else " "
            lines.append(f"[{mark}] {item}" + (f" ({missing[item]})" if item in missing else ""))
    return "\n".join(lines)
