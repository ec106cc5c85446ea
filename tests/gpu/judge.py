"""What measurements are held against: the launches that docs/gpu.md promises, the roofline of the same GPU."""

import pathlib
from collections.abc import Mapping

from runner import FACTS, read_lines

# Of one launch: core::kLargeTable.
TABLE_TENSORS = 2040
# By the name of a call in step_launches.py; for gradients that fit one table.
LAUNCHES = {
    "grad_stats": 1,
    "grad_stats with a clip": 1,
    "unscale_with_stats_": 1,
    "unscale_clamp_": 1,
    "unscale_": 1,
    "scale_grads_ that clips": 1,
    "scale_grads_ that returns at once": 1,
    "unscale_with_stats_ and scale_grads_": 2,
    "grad_stats and scale_grads_": 2,
    "update_scale_": 1,
    "advance_scale_": 1,
    "step_factors": 1,
    "merge_stats of two": 1,
}
WITHOUT_GRADIENTS = ("update_scale_", "advance_scale_", "step_factors", "merge_stats of two")


def expected_launches(call: str, tensors: int) -> int | None:
    """None for a call that nothing is promised of."""
    if call not in LAUNCHES:
        return None
    return LAUNCHES[call] * (1 if call in WITHOUT_GRADIENTS else -(-tensors // TABLE_TENSORS))


def wrong_launches(counted: Mapping[tuple[str, int], int]) -> list[str]:
    """By (call, tensors). One too few is wrong too: then the counting is."""
    found = []
    for (call, tensors), launches in counted.items():
        expected = expected_launches(call, tensors)
        if expected is not None and launches != expected:
            found.append(f"{call} of {tensors} tensors took {launches} launches, not {expected}")
    return found


def read_roofline(file: pathlib.Path, gpu: str) -> tuple[dict[str, float], str | None]:
    """The fastest of each kind in GB/s, or why there is none to compare with. The file may be of an earlier run."""
    lines = read_lines(file)
    facts = next((line[FACTS] for line in lines if FACTS in line), None)
    measured_on = facts.get("gpu") if isinstance(facts, dict) else None
    best: dict[str, float] = {}
    for line in lines:
        what, speed = line.get("what"), line.get("gb_per_s")
        if isinstance(what, str) and isinstance(speed, int | float):
            best[what] = max(best.get(what, 0.0), speed)
    if not best:
        return {}, "the step roofline has measured nothing to compare with"
    if measured_on != gpu:
        return {}, f"the roofline there is was measured on {measured_on}, and this is {gpu}"
    return best, None
