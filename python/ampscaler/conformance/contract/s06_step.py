"""Section 6, first part: what step() checks before it does anything, and which way it takes."""

from __future__ import annotations

from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, MISSING, Steps, attribute_optimizer, spy
from ampscaler.conformance.tools_texts import (
    CLOSURE,
    NOTHING_TO_STEP_BY,
    NOTHING_TO_UPDATE_BY,
    STEPPED_TWICE,
    UNSCALED_TWICE,
    never_scaled,
)


@behaviour(
    "S6.1",
    "A disabled scaler's step() returns optimizer.step(*args, **kwargs), closures included, without any check",
)
def disabled_step_is_the_optimizers(case: Case) -> None:
    scaler = case.new_scaler(enabled=False)
    optimizer = case.sgd([4.0])
    for expected in (-3.0, -7.0):  # not unscaled, and a second step is as good as the first
        case.equal(case.returned(scaler.step(optimizer)), None, "result of step")
        case.equal(case.values(optimizer), [[expected]], "parameter")
    overflow = case.sgd([INF])
    scaler.step(overflow)
    case.equal(case.values(overflow), [[-INF]], "parameter with an infinite gradient")

    loss = case.tensor(0.25)
    case.same(case.returned(scaler.step(optimizer, lambda: loss)), loss, "result of a step with a closure")
    case.same(case.returned(scaler.step(optimizer, closure=lambda: loss)), loss, "result with the keyword closure")
    case.equal(case.values(optimizer), [[-15.0]], "parameter after both")

    result = object()
    anything = case.optimizer(Steps(result=result))
    case.same(case.returned(scaler.step(anything, 1, "two", three=3)), result, "result of the step of a stand-in")
    case.equal(anything.calls, [((1, "two"), {"three": 3})], "what arrived")
    case.returned(scaler.step(anything, None, 2, 3, four=4, five=None, six=result))
    case.equal(anything.calls[1:], [((None, 2, 3), {"four": 4, "five": None, "six": result})], "what arrived then")


@behaviour(
    "S6.2",
    "step() raises RuntimeError for the keyword closure, whatever its value, before any other check and without "
    "making an entry; a positional closure or None is passed on",
)
def closure_keyword_is_refused(case: Case) -> None:
    scaler = case.new_scaler()
    optimizer = case.sgd([4.0])
    for value in (lambda: case.tensor(0.0), None, 0):  # earlier than the check that scale() was called
        case.raises(RuntimeError, CLOSURE, scaler.step, optimizer, closure=value)
    case.raises(RuntimeError, CLOSURE, scaler.step, object(), closure=None)
    scaler.scale(case.tensor(1.0))
    case.raises(RuntimeError, CLOSURE, scaler.step, optimizer, closure=None)
    case.equal(case.gradients(optimizer), [[4.0]], "gradient after the refusal")
    if case.private:
        case.equal(len(scaler._per_optimizer_states), 0, "number of entries")
    case.raises(AssertionError, NOTHING_TO_UPDATE_BY, scaler.update)
    scaler.step(optimizer)
    case.raises(RuntimeError, CLOSURE, scaler.step, optimizer, closure=None)  # earlier than the check for a second step

    loss = case.tensor(0.25)

    def closure() -> torch.Tensor:
        return loss

    for argument in (closure, None):
        taker = case.optimizer(Steps(case.parameter([4.0]), result=loss))
        case.same(case.returned(scaler.step(taker, argument)), loss, "result of a step with a positional closure")
        case.equal(taker.calls, [((argument,), {})], "what arrived")
    case.same(case.returned(scaler.step(case.sgd([4.0]), closure)), loss, "result of SGD's step with a closure")


@behaviour("S6.3", "step() raises AssertionError if scale() was never called, touches nothing and makes no entry")
def step_needs_a_scale(case: Case) -> None:
    scaler = case.new_scaler(4.0)
    optimizer = case.sgd([4.0])
    case.raises(AssertionError, never_scaled("step"), scaler.step, optimizer)
    case.equal(case.gradients(optimizer), [[4.0]], "gradient")
    case.equal(case.values(optimizer), [[1.0]], "parameter")
    if case.private:
        case.equal(len(scaler._per_optimizer_states), 0, "number of entries")
        _the_check_comes_first_and_through_the_instance(case)
    scaler.scale(case.tensor(1.0))
    scaler.step(optimizer)
    case.equal(case.values(optimizer), [[0.0]], "parameter after scale() and step()")


def _the_check_comes_first_and_through_the_instance(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd([4.0])
    scaler.step(optimizer)
    tracker, scaler._growth_tracker = scaler._growth_tracker, None
    case.raises(AssertionError, never_scaled("step", "_growth_tracker"), scaler.step, optimizer)
    scaler._growth_tracker, scaler._scale = tracker, None
    case.raises(AssertionError, never_scaled("step"), scaler.step, optimizer)
    scaler = case.ready_scaler(4.0)
    checked = spy(scaler, "_check_scale_growth_tracker")
    scaler.step(case.sgd([4.0]))
    case.equal(checked, [("step",), ("unscale_",)], "names of the methods that checked")


@behaviour("S6.4", "A second step() of an optimizer since the last update() raises RuntimeError and touches nothing")
def a_second_step_is_refused(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer, skipped = case.sgd([4.0]), case.sgd([INF])
    scaler.step(optimizer)
    scaler.step(skipped)
    for stepped in (optimizer, skipped):
        case.raises(RuntimeError, STEPPED_TWICE, scaler.step, stepped)
    case.equal(case.gradients(optimizer), [[1.0]], "gradient after the refusal")
    case.equal(case.values(optimizer), [[0.0]], "parameter after the refusal")
    itself = attribute_optimizer(case, [4.0])
    scaler.step(itself)
    case.raises(RuntimeError, STEPPED_TWICE, scaler.step, itself)
    case.equal(len(itself.handed), 1, "steps of the optimizer that handles the scale itself")
    scaler.update()
    scaler.step(optimizer)
    case.equal(case.values(optimizer), [[-0.5]], "parameter after update() and one more step at scale 2")


@behaviour(
    "S6.5",
    "step() gives an optimizer whose _step_supports_amp_scaling is truthy the scale and the flag as attributes and "
    "always steps it; any other optimizer takes the ordinary way",
)
def truthy_attribute_means_scales_itself(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    for supports in (True, 1, "yes", object()):
        for gradient, flag in ((4.0, 0.0), (INF, 1.0)):
            optimizer = case.optimizer(Steps(case.parameter([gradient])))
            handed = _note_what_is_handed(optimizer)
            optimizer._step_supports_amp_scaling = supports
            scaler.step(optimizer)
            case.equal(handed, [(case.tensor(4.0), case.tensor(flag))], "grad_scale and found_inf")
            case.equal(case.gradients(optimizer), [[gradient]], "gradient")
    for supports in (False, 0, "", None):
        for gradient, unscaled, handed_over in ((4.0, 1.0, [(MISSING, MISSING)]), (INF, INF, [])):
            optimizer = case.optimizer(Steps(case.parameter([gradient])))
            handed = _note_what_is_handed(optimizer)
            optimizer._step_supports_amp_scaling = supports
            scaler.step(optimizer)
            case.equal(handed, handed_over, "grad_scale and found_inf of an ordinary step")
            case.equal(case.gradients(optimizer), [[unscaled]], "gradient of an ordinary step")
    on_the_class = attribute_optimizer(case, [4.0])
    scaler.step(on_the_class)
    handed = [(step.grad_scale, step.found_inf) for step in on_the_class.handed]
    case.equal(handed, [(case.tensor(4.0), case.tensor(0.0))], "grad_scale and found_inf, attribute of the class")


def _note_what_is_handed(optimizer: Any) -> list[tuple[Any, Any]]:
    handed: list[tuple[Any, Any]] = []
    optimizer.step = lambda: handed.append(
        (getattr(optimizer, "grad_scale", MISSING), getattr(optimizer, "found_inf", MISSING))
    )
    return handed


@behaviour(
    "S6.6",
    "An ordinary step() calls self.unscale_(optimizer) if the stage is READY, raises AssertionError if nothing was "
    "recorded, and else calls self._maybe_opt_step(optimizer, state, *args, **kwargs)",
)
def ordinary_step_unscales_if_needed(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer, unscaled = case.sgd([4.0]), case.sgd([4.0])
    scaler.unscale_(unscaled)
    for each in (optimizer, unscaled):
        scaler.step(each)
        case.equal(case.gradients(each), [[1.0]], "gradient")
        case.equal(case.values(each), [[0.0]], "parameter")
    empty = case.sgd(None)
    case.raises(AssertionError, NOTHING_TO_STEP_BY, scaler.step, empty)
    case.equal(case.values(empty), [[1.0, 1.0]], "parameters without gradient")
    unscaled_before = case.sgd(None)
    scaler.unscale_(unscaled_before)
    case.raises(AssertionError, NOTHING_TO_STEP_BY, scaler.step, unscaled_before)
    if case.private:
        case.equal(case.stage(scaler, empty), "UNSCALED", "stage")
        _the_parts_of_a_step_are_replaceable(case)
    case.raises(RuntimeError, UNSCALED_TWICE, scaler.unscale_, empty)


def _the_parts_of_a_step_are_replaceable(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd([4.0])
    unscaled: list[Any] = []
    handed: list[Any] = []
    original = case.raw(scaler).unscale_

    def unscale(which: Any) -> None:
        unscaled.append(which)
        original(which)

    scaler.unscale_ = unscale
    scaler._maybe_opt_step = lambda *args, **kwargs: handed.append((args, kwargs))
    scaler.step(optimizer, 1, two=2)
    case.equal(unscaled, [optimizer], "optimizers that unscale_() saw")
    state = scaler._per_optimizer_states[id(optimizer)]
    (args, kwargs) = handed[0]
    case.equal(len(handed), 1, "calls of _maybe_opt_step")
    case.same(args[0], optimizer, "first argument")
    case.same(args[1], state, "second argument")
    case.equal((args[2:], kwargs), ((1,), {"two": 2}), "other arguments")
    ready = case.sgd([4.0])
    scaler.unscale_(ready)
    scaler.step(ready)
    case.equal(unscaled, [optimizer, ready], "optimizers that unscale_() saw, the second one by our own call only")
