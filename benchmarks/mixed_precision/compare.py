"""Do two scalers train alike? Loss, scale, decision and probe parameter of every attempt, compared bit for bit."""

import struct
from typing import Any

from mixed_precision.metrics import finite_or_none
from mixed_precision.runs import RUNS, Run
from mixed_precision.steps import Attempt

QUANTITIES = ("loss", "scale_after", "applied", "probe_sha256")


def bits(value: Any) -> Any:
    """NaN equals a NaN of the same bits, and 0 is not -0."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def plain(value: Any) -> Any:
    """As JSON can hold it."""
    return finite_or_none(value) if isinstance(value, float) else value


def differing_quantity(one: Attempt, other: Attempt) -> str | None:
    names = (name for name in QUANTITIES if bits(getattr(one, name)) != bits(getattr(other, name)))
    return next(names, None)


def first_difference(label: str, torchs: Run, ours: Run) -> dict[str, Any] | None:
    """Attempts are counted from 1."""
    pairs = zip(torchs.trajectory, ours.trajectory, strict=False)
    for index, (one, other) in enumerate(pairs, start=1):
        name = differing_quantity(one, other)
        if name is not None:
            values = {"torch": plain(getattr(one, name)), "ampscaler": plain(getattr(other, name))}
            return {"run": label, "attempt": index, "quantity": name, **values}
    lengths = len(torchs.trajectory), len(ours.trajectory)
    if lengths[0] != lengths[1]:
        counts = {"torch": lengths[0], "ampscaler": lengths[1]}
        return {"run": label, "attempt": min(lengths) + 1, "quantity": "attempts", **counts}
    return None


def compare(torchs: dict[str, Run], ours: dict[str, Run]) -> dict[str, Any]:
    found = [first_difference(label, torchs[label], ours[label]) for label in RUNS]
    differences = [difference for difference in found if difference is not None]
    return {
        "equal": not differences,
        "compared_attempts": sum(len(torchs[label].trajectory) for label in RUNS),
        "first_difference": differences[0] if differences else None,
    }
