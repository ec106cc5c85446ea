"""Section 14, second part: checks that survive python -O, and the three stages of an optimizer."""

from __future__ import annotations

from typing import Any

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, attribute_optimizer
from ampscaler.conformance.tools_dash_o import RAISED, RAISED_BY_PRIVATE_NAMES, raised_by_subject
from ampscaler.conformance.tools_texts import STEPPED_TWICE, UNSCALED_LATE, UNSCALED_TWICE


@behaviour(
    "S14.2",
    "The checks of a scaler are explicit raises, so that they raise under python -O, which drops assert statements, "
    "too",
)
def checks_survive_dash_o(case: Case) -> None:
    expected = RAISED + (RAISED_BY_PRIVATE_NAMES if case.private else [])
    for got, wanted in zip(raised_by_subject(case)[: len(expected)], expected, strict=True):
        case.equal(got, wanted, f"error of: {wanted[0]}")


def _stage(case: Case, scaler: Any, optimizer: Any, expected: str) -> None:
    if case.private:
        case.equal(case.stage(scaler, optimizer), expected, "stage")


@behaviour(
    "S14.3",
    "Every optimizer, by its id, goes from READY to UNSCALED by unscale_() and from either to STEPPED by step(); "
    "any update() makes all of them READY; one that raises stays UNSCALED, or, if it handles the scale, where it "
    "was",
)
def the_three_stages(case: Case) -> None:
    for new_scale, gradient in ((None, 0.25), (8.0, 0.125), (case.tensor(16.0), 0.0625)):
        scaler = case.ready_scaler(4.0)
        in_two_steps, at_once, unscaled = case.sgd([4.0]), case.sgd([4.0]), case.sgd([4.0])
        _stage(case, scaler, in_two_steps, "READY")
        scaler.unscale_(in_two_steps)
        _stage(case, scaler, in_two_steps, "UNSCALED")
        case.raises(RuntimeError, UNSCALED_TWICE, scaler.unscale_, in_two_steps)
        _stage(case, scaler, in_two_steps, "UNSCALED")
        _stage(case, scaler, at_once, "READY")
        scaler.step(at_once)
        scaler.step(in_two_steps)
        scaler.unscale_(unscaled)
        for stepped in (in_two_steps, at_once):
            _stage(case, scaler, stepped, "STEPPED")
            case.raises(RuntimeError, UNSCALED_LATE, scaler.unscale_, stepped)
            case.raises(RuntimeError, STEPPED_TWICE, scaler.step, stepped)
            _stage(case, scaler, stepped, "STEPPED")
        scaler.update(new_scale)
        for optimizer in (in_two_steps, at_once, unscaled):
            case.equal(case.gradients(optimizer), [[1.0]], "gradient, divided once by 4")
            _stage(case, scaler, optimizer, "READY")
            scaler.unscale_(optimizer)
            case.equal(case.gradients(optimizer), [[gradient]], "gradient, divided again in the next iteration")
    _a_raising_optimizer_keeps_its_stage(case)
    if case.private:
        _a_reused_id_inherits_the_entry(case)


def _a_raising_optimizer_keeps_its_stage(case: Case) -> None:
    scaler = case.ready_scaler(4.0)

    def broken() -> None:
        raise OSError("disk full")

    ordinary, itself, unscaled = case.sgd([4.0]), attribute_optimizer(case, [4.0]), attribute_optimizer(case, [4.0])
    scaler.unscale_(unscaled)
    for optimizer in (ordinary, itself, unscaled):
        optimizer.step = broken
        case.raises(OSError, "disk full", scaler.step, optimizer)
    _stage(case, scaler, ordinary, "UNSCALED")
    _stage(case, scaler, itself, "READY")
    _stage(case, scaler, unscaled, "UNSCALED")
    case.raises(RuntimeError, UNSCALED_TWICE, scaler.unscale_, ordinary)
    case.raises(RuntimeError, UNSCALED_TWICE, scaler.unscale_, unscaled)
    scaler.unscale_(itself)
    for optimizer in (ordinary, itself, unscaled):
        case.equal(case.gradients(optimizer), [[1.0]], "gradient, divided once")
        del optimizer.step
        scaler.step(optimizer)
        case.raises(RuntimeError, STEPPED_TWICE, scaler.step, optimizer)


def _a_reused_id_inherits_the_entry(case: Case) -> None:
    """Entries belong to ids: the one of a deleted optimizer is taken for that of the next one at the same address."""
    scaler = case.ready_scaler(4.0)
    gone, overflowed, new = case.sgd([4.0]), case.sgd([INF]), case.sgd([4.0])
    scaler.step(gone)
    scaler.unscale_(overflowed)
    states = scaler._per_optimizer_states
    case.equal(list(states), [id(gone), id(overflowed)], "keys")
    states[id(new)] = states[id(gone)]
    case.raises(RuntimeError, STEPPED_TWICE, scaler.step, new)
    case.raises(RuntimeError, UNSCALED_LATE, scaler.unscale_, new)
    states[id(new)] = states[id(overflowed)]
    scaler.step(new)
    case.equal(case.gradients(new), [[4.0]], "gradient, which was taken for unscaled")
    case.equal(case.values(new), [[1.0]], "parameter, skipped for the other's overflow")
    case.raises(RuntimeError, STEPPED_TWICE, scaler.step, overflowed)
