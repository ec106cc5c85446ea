"""Section 6, second part: whether the optimizer runs, what step() returns, and which stage remains."""

from __future__ import annotations

import re
import warnings
from typing import Any
from unittest import mock

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, NAN, HostReads, Steps, attribute_optimizer
from ampscaler.conformance.tools_texts import (
    NOTHING_TO_STEP_BY,
    NOTHING_TO_UPDATE_BY,
    STEPPED_TWICE,
    UNSCALED_LATE,
    UNSCALED_TWICE,
)


@behaviour(
    "S6.7",
    "An ordinary step() reads each flag, at most once, adds them up and runs the optimizer, with all further "
    "arguments and in the caller's grad mode, only if the sum is zero: 0.5, 2, -1 and NaN skip; a skip returns None, "
    "calls no hooks and leaves the optimizer as it is",
)
def optimizer_runs_only_if_all_is_finite(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    result = object()
    for gradient, steps in ((4.0, 1), (INF, 0), (-INF, 0), (NAN, 0)):
        optimizer = case.optimizer(Steps(case.parameter([8.0]), case.parameter([gradient]), result=result))
        got = case.returned(scaler.step(optimizer, 1, None, "three", four=4, five=None, six=result))
        case.same(got, result if steps else None, "result of step")
        arrived = ((1, None, "three"), {"four": 4, "five": None, "six": result})
        case.equal(optimizer.calls, [arrived] * steps, "steps of the optimizer")
    optimizer = case.sgd([4.0])
    with HostReads() as reads:
        scaler.step(optimizer)
    case.equal(reads.count, 1, "host reads of a step with one device")
    _a_skip_leaves_hooks_and_schedulers_alone(case)
    for momentum in (0.0, 0.5):
        _a_skip_leaves_the_optimizer_alone(case, momentum)
    _the_grad_mode_is_the_callers(case)
    if case.private:
        _the_sum_decides(case)


def _a_skip_leaves_hooks_and_schedulers_alone(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    for gradient, called, complaints in ((INF, [], 1), (4.0, ["pre", "post"], 0)):
        optimizer = case.sgd([gradient])
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
        hooks: list[str] = []
        optimizer.register_step_pre_hook(lambda *_: hooks.append("pre"))
        optimizer.register_step_post_hook(lambda *_: hooks.append("post"))
        scaler.step(optimizer)
        case.equal(hooks, called, f"hooks called at gradient {gradient}")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scheduler.step()
        before = [w for w in caught if "`lr_scheduler.step()` before `optimizer.step()`" in str(w.message)]
        case.equal(
            len(before), complaints, f"complaints of the scheduler that no step came before, at gradient {gradient}"
        )


def _a_skip_leaves_the_optimizer_alone(case: Case, momentum: float) -> None:
    scaler, optimizer = case.ready_scaler(4.0), case.sgd([4.0], momentum=momentum)
    for _ in range(2):  # before the first step and after it
        gradient = case.parameters(optimizer)[0].grad
        assert gradient is not None
        gradient.fill_(INF)
        before, entries = {**vars(optimizer)}, _entries(optimizer)
        scaler.step(optimizer)
        case.equal({**vars(optimizer)}, before, "attributes of the optimizer after a skip")
        case.equal(_entries(optimizer), entries, "its groups and state after a skip")
        scaler.update(4.0)
        gradient.fill_(4.0)
        scaler.step(optimizer)
        scaler.update()
    nothing_else = case.optimizer(Steps(case.parameter([INF])))
    before = {**vars(nothing_else)}
    scaler.step(nothing_else)
    case.equal({**vars(nothing_else)}, before, "attributes of a stand-in after a skip")


def _entries(optimizer: Any) -> list[Any]:
    """What an optimizer has for each group and each parameter, copied so far that a later change shows."""
    state = [
        (parameter, name, value.clone() if isinstance(value, torch.Tensor) else value)
        for parameter, entry in optimizer.state.items()
        for name, value in entry.items()
    ]
    return [[{**group, "params": [*group["params"]]} for group in optimizer.param_groups], state]


def _the_grad_mode_is_the_callers(case: Case) -> None:
    modes: list[bool] = []
    for mode in (True, False):
        optimizer = case.optimizer(Steps(case.parameter([4.0])))
        optimizer.step = lambda: modes.append(torch.is_grad_enabled())
        scaler = case.ready_scaler(4.0)
        with torch.set_grad_enabled(mode):
            scaler.step(optimizer)
            case.equal(torch.is_grad_enabled(), mode, "grad mode after the step")
    case.equal(modes, [True, False], "grad modes during the steps of callers with gradients on and off")


def _the_sum_decides(case: Case) -> None:
    scaler = case.new_scaler()
    result = object()
    records = (
        ([0.0], 1),
        ([0.5], 0),
        ([2.0], 0),
        ([-1.0], 0),
        ([NAN], 0),
        ([0.0, 1.0], 0),
        ([0.0, 0.0], 1),
        ([1.0, -1.0], 1),
    )
    for record, steps in records:
        optimizer = case.optimizer(Steps(case.parameter([4.0]), result=result))
        state = {"found_inf_per_device": {f"device {i}": case.tensor(value) for i, value in enumerate(record)}}
        with HostReads() as reads:
            got = scaler._maybe_opt_step(optimizer, state, 1, two=2)
        case.same(got, result if steps else None, f"result at the flags {record}")
        case.equal(optimizer.calls, [((1,), {"two": 2})] * steps, f"steps at the flags {record}")
        case.true(reads.count <= len(record), f"{reads.count} host reads at the flags {record}: at most one for each")
        case.equal(list(state), ["found_inf_per_device"], "keys of the state")


@behaviour(
    "S6.8",
    "After step() the optimizer counts as STEPPED, in the same entry, whether it ran or was skipped; step() returns "
    "what the optimizer's step returned",
)
def stepped_either_way(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    result = object()
    for gradient in (4.0, INF):
        optimizer = case.optimizer(Steps(case.parameter([gradient]), result=result))
        case.same(case.returned(scaler.step(optimizer)), None if gradient == INF else result, "result of step")
        case.raises(RuntimeError, STEPPED_TWICE, scaler.step, optimizer)
        case.raises(RuntimeError, UNSCALED_LATE, scaler.unscale_, optimizer)
    if case.private:
        _the_same_state_is_changed(case)
    # An update() from inside the optimizer's step drops the entry; marking it afterwards must not bring it back.
    updating = case.sgd([4.0])
    updating.step = scaler.update
    scaler.step(updating)
    del updating.step
    case.raises(AssertionError, NOTHING_TO_UPDATE_BY, scaler.update)
    scaler.unscale_(updating)
    case.equal(case.gradients(updating), [[0.5]], "gradient, divided by 4 and then by the new scale 2")


def _the_same_state_is_changed(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    for gradient in (4.0, INF):
        optimizer = case.sgd([gradient])
        state = scaler._per_optimizer_states[id(optimizer)]
        scaler.step(optimizer)
        case.same(scaler._per_optimizer_states[id(optimizer)], state, "the entry")
        case.equal(state["stage"].name, "STEPPED", "stage")
    result = object()
    scaler._maybe_opt_step = lambda optimizer, optimizer_state: result
    case.same(scaler.step(case.sgd([INF])), result, "result of a replaced _maybe_opt_step")


@behaviour(
    "S6.9",
    "An optimizer that raises in an ordinary step() stays UNSCALED: a retry steps without unscaling the gradients "
    "again",
)
def a_raising_optimizer_can_be_retried(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd([4.0])
    failure = OSError("disk full")

    def broken() -> None:
        raise failure

    optimizer.step = broken
    for _ in range(2):
        case.same(case.raises(OSError, "disk full", scaler.step, optimizer), failure, "the error")
        case.equal(case.gradients(optimizer), [[1.0]], "gradient after the error")
    case.raises(RuntimeError, UNSCALED_TWICE, scaler.unscale_, optimizer)
    if case.private:
        case.equal(case.stage(scaler, optimizer), "UNSCALED", "stage")
    del optimizer.step
    scaler.step(optimizer)
    case.equal(case.gradients(optimizer), [[1.0]], "gradient after the retry")
    case.equal(case.values(optimizer), [[0.0]], "parameter after the retry")
    case.raises(RuntimeError, STEPPED_TWICE, scaler.step, optimizer)
    scaler.update()
    case.equal(case.growth_tracker(scaler), 1, "growth tracker")


@behaviour(
    "S6.10",
    "step() goes by what unscale_() recorded: gradients that became inf since are stepped, repaired ones still skipped",
)
def the_record_decides(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    spoilt = case.sgd([4.0])
    scaler.unscale_(spoilt)
    case.parameters(spoilt)[0].grad = case.tensor([INF])
    scaler.step(spoilt)
    case.equal(case.values(spoilt), [[-INF]], "parameter whose gradient was spoilt after unscale_()")
    scaler.update()
    case.equal(scaler.get_scale(), 4.0, "scale")

    repaired = case.sgd([INF])
    scaler.unscale_(repaired)
    case.parameters(repaired)[0].grad = case.tensor([1.0])
    case.equal(case.returned(scaler.step(repaired)), None, "result of step")
    case.equal(case.values(repaired), [[1.0]], "parameter whose gradient was repaired after unscale_()")
    scaler.update()
    case.equal(scaler.get_scale(), 2.0, "scale after the update")


@behaviour(
    "S6.11",
    "step() looks up optimizer.step on the instance when it runs, so that wrappers may replace it at any time",
)
def the_step_of_the_instance_is_called(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd([4.0])
    scaler.unscale_(optimizer)
    result = object()
    arrived: list[Any] = []

    def patched(*args: Any, **kwargs: Any) -> object:
        arrived.append((args, kwargs))
        return result

    optimizer.step = patched
    case.same(case.returned(scaler.step(optimizer, 1, two=2)), result, "result of step")
    case.equal(arrived, [((1,), {"two": 2})], "what arrived at the replacement")
    case.equal(case.values(optimizer), [[1.0]], "parameter")
    itself = attribute_optimizer(case, [4.0])
    itself.step = patched
    case.same(case.returned(scaler.step(itself, 3)), result, "result of the optimizer that handles the scale itself")
    disabled = case.new_scaler(enabled=False)
    case.same(case.returned(disabled.step(optimizer, 4)), result, "result with a disabled scaler")
    case.equal(arrived[1:], [((3,), {}), ((4,), {})], "what arrived then")
    del optimizer.step
    scaler.update()
    scaler.step(optimizer)
    case.equal(case.values(optimizer), [[0.75]], "parameter once the replacement is gone")


class _NoStep:
    def __init__(self, parameter: torch.nn.Parameter) -> None:
        self.param_groups = [{"params": [parameter]}]


class _NoGroups:
    def step(self) -> None:
        raise NotImplementedError


@behaviour(
    "S6.12",
    "step() takes anything with param_groups and step for an optimizer; without one of them it raises "
    "AttributeError where it is needed",
)
def an_optimizer_is_what_has_groups_and_a_step(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    enough = case.optimizer(Steps(case.parameter([4.0])))
    scaler.step(enough)
    case.equal(len(enough.calls), 1, "steps")
    case.equal(case.gradients(enough), [[1.0]], "gradient")
    without_groups = re.compile("has no attribute 'param_groups'")
    case.raises(AttributeError, without_groups, scaler.step, case.optimizer(_NoGroups()))
    case.raises(AttributeError, without_groups, scaler.unscale_, None)
    without_step = case.optimizer(_NoStep(case.parameter([4.0])))
    case.raises(AttributeError, re.compile("has no attribute 'step'"), scaler.step, without_step)
    case.equal(case.gradients(without_step), [[1.0]], "gradient, which had been unscaled by then")
    skipped = case.optimizer(_NoStep(case.parameter([INF])))
    case.equal(case.returned(scaler.step(skipped)), None, "result of a skipped step, which needs no optimizer.step")


@behaviour(
    "S6.13",
    "step() compares stages by identity with the members of OptState: any other value, such as the int 2, is "
    "neither READY nor STEPPED, nor UNSCALED for an optimizer that handles the scale itself",
    private=True,
)
def a_foreign_stage_is_no_stage(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    for stage in (2, 1, 0, "STEPPED", None, mock.ANY):  # the last is equal to everything
        for flag, after in ((0.0, -3.0), (1.0, 1.0)):
            optimizer = case.sgd([4.0])
            state = scaler._per_optimizer_states[id(optimizer)]
            state.update(stage=stage, found_inf_per_device={case.device: case.tensor(flag)})
            scaler.step(optimizer)
            case.equal(case.gradients(optimizer), [[4.0]], f"gradient, not unscaled at stage {stage}")
            case.equal(case.values(optimizer), [[after]], f"parameter at stage {stage} and flag {flag}")
            case.equal(state["stage"].name, "STEPPED", "stage afterwards")
        optimizer = case.sgd([4.0])
        scaler._per_optimizer_states[id(optimizer)]["stage"] = stage
        case.raises(AssertionError, NOTHING_TO_STEP_BY, scaler.step, optimizer)
    for stage in (2, 1, 0, "STEPPED", None):
        itself = attribute_optimizer(case, [INF])
        state = scaler._per_optimizer_states[id(itself)]
        state.update(stage=stage, found_inf_per_device={case.device: case.tensor(0.0)})
        scaler.step(itself)
        # Not READY: the gradient is not looked at. Not UNSCALED: the scale is handed over.
        handed = [(step.grad_scale, step.found_inf) for step in itself.handed]
        case.equal(handed, [(case.tensor(4.0), case.tensor(0.0))], f"grad_scale and found_inf at stage {stage}")
        case.equal(state["stage"].name, "STEPPED", "stage afterwards")
