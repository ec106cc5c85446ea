"""Section 11: what the scaler hands to an optimizer that handles the scale itself, as two attributes of the optimizer.

The optimizer here writes down what it was handed; the stock fused ones are in s11_stock_fused.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import (
    INF,
    MISSING,
    AttributeOptimizer,
    HostReads,
    Operations,
    attribute_optimizer,
    sparse,
    spy,
    to_float32,
)
from ampscaler.conformance.tools_texts import NOTHING_TO_UPDATE_BY, STEPPED_TWICE, UNSCALED_LATE, UNSCALED_TWICE


def _raise(optimizer: Any) -> None:
    raise ArithmeticError("the optimizer failed")


@behaviour(
    "S11.3",
    "step() only checks the gradients, float16 ones too and sparse ones of these by their sums, of an optimizer in the "
    "stage READY that handles the scale itself, by the private self._check_inf_per_device(optimizer): they stay scaled",
)
def gradients_are_only_checked(case: Case) -> None:
    for dtype in (torch.float32, torch.float16):
        for gradient, flag in ((8.0, 0.0), (INF, 1.0), (float("nan"), 1.0)):
            optimizer = attribute_optimizer(case, [gradient, 8.0], dtype=dtype)
            scaler = case.ready_scaler(4.0)
            scaler.step(optimizer)
            case.equal(
                optimizer.handed[0].gradients, [case.tensor([gradient, 8.0], dtype)], "gradients during the step"
            )
            case.equal(optimizer.handed[0].found_inf, case.tensor(flag), "flag")
            case.equal(case.parameters(optimizer)[0].grad, case.tensor([gradient, 8.0], dtype), "gradient afterwards")
            scaler.update()
            case.equal(scaler.get_scale(), 2.0 if flag else 4.0, "scale after the update")
    for values, total in (([40000.0, 40000.0], INF), ([8.0, 16.0], 24.0)):
        optimizer = attribute_optimizer(case, sparse(case, [1, 1], values, torch.float16))
        scaler = case.ready_scaler(4.0)
        scaler.step(optimizer)
        expected = case.tensor(float(total == INF))
        case.equal(optimizer.handed[0].found_inf, expected, f"flag of a sparse float16 gradient that sums {values}")
        case.equal(case.gradients(optimizer), [[0.0, total, 0.0]], "the sparse gradient, still scaled")
        scaler.update()
        case.equal(scaler.get_scale(), 2.0 if total == INF else 4.0, "scale after the update")
    if case.private:
        _check_goes_through_the_scaler(case)


def _check_goes_through_the_scaler(case: Case) -> None:
    for explicit in (False, True):
        scaler = case.ready_scaler(4.0)
        optimizer = attribute_optimizer(case, [8.0])
        calls: list[Any] = spy(scaler, "_check_inf_per_device")
        optimizer.during = lambda _: calls.append(case.stage(scaler, optimizer))
        if explicit:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        expected: list[Any] = ["UNSCALED"] if explicit else [(optimizer,), "READY"]
        case.equal(calls, expected, "calls of _check_inf_per_device, and the stage during the step")


@behaviour(
    "S11.4",
    "step() sets optimizer.found_inf to a new tensor, the sum of the flags on the scale's device, or to the int 0 "
    "if there are none",
)
def found_inf_is_the_sum_of_the_flags(case: Case) -> None:
    for explicit in (False, True):
        for gradients, flag in (([8.0], 0.0), ([INF], 1.0), ([float("nan")], 1.0)):
            scaler = case.ready_scaler(4.0)
            optimizer = attribute_optimizer(case, gradients, [1.0])
            if explicit:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            case.equal(optimizer.handed[0].found_inf, case.tensor(flag), "found_inf")
    if case.private:
        _flags_of_several_devices(case)
    scaler = case.ready_scaler(4.0)
    optimizer = attribute_optimizer(case, [8.0])
    optimizer.during = lambda o: o.found_inf.fill_(1.0)
    scaler.step(optimizer)
    scaler.update()
    case.equal(scaler.get_scale(), 4.0, "scale after an optimizer wrote into its clean found_inf")
    optimizer = attribute_optimizer(case, None)
    scaler.step(optimizer)
    case.equal(optimizer.handed[0].found_inf, 0, "found_inf without gradients")


def _flags_of_several_devices(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = attribute_optimizer(case, [8.0])
    scaler.unscale_(optimizer)
    flags = {"one": case.tensor(1.0), "two": case.tensor(1.0), "three": case.tensor(0.0)}
    scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = flags
    scaler.step(optimizer)
    case.equal(optimizer.handed[0].found_inf, case.tensor(2.0), "found_inf of three entries")
    case.equal(list(flags.values()), [case.tensor(1.0), case.tensor(1.0), case.tensor(0.0)], "the entries afterwards")
    scaler = case.ready_scaler(4.0)
    optimizer = attribute_optimizer(case, [8.0])
    scaler.unscale_(optimizer)
    scaler._scale = scaler._scale.to("meta")
    with Operations() as operations:
        scaler.step(optimizer)
    moves = operations.arguments_of(torch.ops.aten._to_copy.default)
    case.equal([kwargs.get("non_blocking") for _, kwargs in moves], [True], "non_blocking of the flag's move")
    case.equal(optimizer.handed[0].found_inf.device.type, "meta", "device of found_inf when the scale is on meta")


@behaviour(
    "S11.5",
    "step() sets optimizer.grad_scale to a new 0-dim tensor, the scale times a grad_scale that was set before; "
    "after unscale_() it is the one set before, or None; one set to None raises TypeError if the stage is READY",
)
def grad_scale_counts_on_top_of_the_users(case: Case) -> None:
    for own, unscaled, product in ((None, None, 4.0), (2.0, 2.0, 8.0), (case.tensor(0.5), case.tensor(0.5), 2.0)):
        for explicit in (False, True):
            scaler = case.ready_scaler(4.0)
            optimizer = attribute_optimizer(case, [8.0])
            if own is not None:
                optimizer.grad_scale = own
            if explicit:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            case.equal(optimizer.handed[0].grad_scale, unscaled if explicit else case.tensor(product), "grad_scale")
            case.equal(optimizer.handed[0].gradients, [case.tensor([2.0 if explicit else 8.0])], "gradients")
    _grad_scale_is_exact(case)
    _grad_scale_is_nobody_elses(case)
    if case.private:
        _only_the_member_unscaled_counts(case)
    optimizer = attribute_optimizer(case, [8.0])
    optimizer.grad_scale = None
    case.raises(TypeError, re.compile(r"^unsupported operand"), case.ready_scaler(4.0).step, optimizer)
    case.equal(optimizer.handed, [], "calls of an optimizer whose own grad_scale is None")


def _grad_scale_is_exact(case: Case) -> None:
    """Many of these scales are not the reciprocal of their own rounded reciprocal, the first being 7."""
    scales = [*map(float, range(1, 101)), 3000.0, 65519.0, 65521.0, 16777215.0, 3e38]
    scales += [to_float32(0.1), to_float32(1e-30)]
    scaler = case.ready_scaler(4.0)
    for scale in scales:
        scaler.update(scale)
        plain, own = attribute_optimizer(case, [8.0]), attribute_optimizer(case, [8.0])
        own.grad_scale = 0.5
        scaler.step(plain)
        scaler.step(own)
        case.equal(plain.handed[0].grad_scale, case.tensor(scale), f"grad_scale at the scale {scale}")
        case.equal(own.handed[0].grad_scale, case.tensor(scale * 0.5), f"grad_scale at {scale}, on top of one of 0.5")


def _grad_scale_is_nobody_elses(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = attribute_optimizer(case, [8.0])
    optimizer.during = lambda o: o.grad_scale.fill_(99.0)
    scaler.step(optimizer)
    case.equal(scaler.get_scale(), 4.0, "scale after the optimizer wrote into its grad_scale")
    scaler, own, seen = case.ready_scaler(4.0), case.tensor(2.0), []
    optimizer = attribute_optimizer(case, [8.0])
    optimizer.grad_scale = own
    optimizer.during = lambda o: seen.append(o.grad_scale)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    case.same(seen[0], own, "grad_scale after unscale_")
    shared = type("WithClassAttribute", (AttributeOptimizer,), {"grad_scale": 0.25})
    optimizer = case.optimizer(shared(case.parameter([8.0])))
    case.ready_scaler(4.0).step(optimizer)
    case.equal(optimizer.handed[0].grad_scale, case.tensor(1.0), "grad_scale with one of 0.25 in the optimizer's class")


def _only_the_member_unscaled_counts(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = attribute_optimizer(case, [8.0])
    scaler.unscale_(optimizer)
    scaler._per_optimizer_states[id(optimizer)]["stage"] = 1  # the number of UNSCALED is not UNSCALED
    scaler.step(optimizer)
    case.equal(optimizer.handed[0].grad_scale, case.tensor(4.0), "grad_scale with the foreign stage 1")
    case.equal(optimizer.handed[0].gradients, [case.tensor([2.0])], "gradients with the foreign stage 1")


@behaviour(
    "S11.6",
    "An optimizer that handles the scale itself is always stepped, with all further arguments, in the caller's grad "
    "mode and without a host read; then it is STEPPED, both "
    "attributes, a user's own grad_scale too, are deleted, and its value is returned",
)
def the_optimizer_is_always_stepped(case: Case) -> None:
    for explicit in (False, True):
        for gradient in (8.0, INF):
            scaler = case.ready_scaler(4.0)
            optimizer = attribute_optimizer(case, [gradient])
            if explicit:
                scaler.unscale_(optimizer)
            value = case.returned(scaler.step(optimizer, 1, None, "three", four=4, five=None, six=case))
            case.equal(value, "the optimizer's value", "value of the step")
            arrived = ((1, None, "three"), {"four": 4, "five": None, "six": case})
            case.equal([(h.args, h.kwargs) for h in optimizer.handed], [arrived], "the optimizer's calls")
            case.equal(
                sorted(vars(optimizer)), ["during", "handed", "param_groups"], "the optimizer's attributes afterwards"
            )
            _is_stepped(case, scaler, optimizer)
    _reads_nothing(case)
    _the_grad_mode_is_the_callers(case)
    optimizer = attribute_optimizer(case, [8.0])
    optimizer.grad_scale = case.tensor(2.0)
    case.ready_scaler(4.0).step(optimizer)
    case.true(not hasattr(optimizer, "grad_scale"), "a grad_scale of the user's is deleted as well")
    for name in ("grad_scale", "found_inf"):
        scaler, optimizer = case.ready_scaler(4.0), attribute_optimizer(case, [8.0])
        optimizer.during = lambda o, name=name: delattr(o, name)
        case.raises(AttributeError, re.compile(name), scaler.step, optimizer)
        _is_stepped(case, scaler, optimizer)


def _is_stepped(case: Case, scaler: Any, optimizer: Any) -> None:
    case.raises(RuntimeError, STEPPED_TWICE, scaler.step, optimizer)
    case.raises(RuntimeError, UNSCALED_LATE, scaler.unscale_, optimizer)
    if case.private:
        case.equal(case.stage(scaler, optimizer), "STEPPED", "stage")


def _the_grad_mode_is_the_callers(case: Case) -> None:
    for mode in (True, False):
        for explicit in (False, True):
            modes: list[bool] = []
            scaler, optimizer = case.ready_scaler(4.0), attribute_optimizer(case, [8.0])
            optimizer.during = lambda _, modes=modes: modes.append(torch.is_grad_enabled())
            with torch.set_grad_enabled(mode):
                if explicit:
                    scaler.unscale_(optimizer)
                scaler.step(optimizer)
                modes.append(torch.is_grad_enabled())
            case.equal(modes, [mode, mode], "grad modes during and after the step")


def _reads_nothing(case: Case) -> None:
    fused = case.sgd([8.0], fused=True)
    for optimizer, expected in ((case.sgd([8.0]), 1), (attribute_optimizer(case, [8.0]), 0), (fused, 0)):
        scaler = case.ready_scaler(4.0)
        with HostReads() as reads:
            scaler.step(optimizer)
        case.equal(reads.count, expected, f"reads by the host in a step of {type(optimizer).__name__}")


@behaviour(
    "S11.7",
    "When an optimizer that handles the scale itself raises, its stage stays READY or UNSCALED, and grad_scale and "
    "found_inf stay on it",
)
def a_raising_optimizer_keeps_stage_and_attributes(case: Case) -> None:
    left = []
    for explicit in (False, True):
        scaler = case.ready_scaler(4.0)
        optimizer = attribute_optimizer(case, [8.0])
        if explicit:
            scaler.unscale_(optimizer)
        optimizer.during = _raise
        case.raises(ArithmeticError, "the optimizer failed", scaler.step, optimizer)
        left.append([getattr(optimizer, name, MISSING) for name in ("grad_scale", "found_inf")])
        if case.private:
            case.equal(case.stage(scaler, optimizer), "UNSCALED" if explicit else "READY", "stage")
        if explicit:
            case.raises(RuntimeError, UNSCALED_TWICE, scaler.unscale_, optimizer)
        else:
            scaler.unscale_(optimizer)  # still possible
        optimizer.during = lambda o: None
        scaler.step(optimizer)
        case.equal(optimizer.handed[-1].gradients, [case.tensor([2.0])], "gradients of the second attempt")
        scaler.update()
    expected = [[case.tensor(4.0), case.tensor(0.0)], [None, case.tensor(0.0)]]
    case.equal(left, expected, "grad_scale and found_inf after the error, without and with an explicit unscale_")


@behaviour(
    "S11.8",
    "Without gradients an optimizer that handles the scale itself is stepped without an error, and update() raises "
    "AssertionError",
)
def without_gradients_only_update_raises(case: Case) -> None:
    for optimizer in (attribute_optimizer(case, None), case.sgd(None, fused=True)):
        scaler = case.ready_scaler(4.0)
        steps: list[Any] = getattr(optimizer, "handed", [])
        if isinstance(optimizer, torch.optim.Optimizer):
            optimizer.register_step_pre_hook(lambda *_, steps=steps: steps.append(0))
        scaler.step(optimizer)
        case.equal(len(steps), 1, "calls of the optimizer's step")
        case.raises(AssertionError, NOTHING_TO_UPDATE_BY, scaler.update)
