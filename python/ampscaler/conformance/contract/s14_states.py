"""Section 14, second part: checks that survive python -O, and the three stages of an optimizer."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch

from ampscaler.conformance.case import Case, NotApplicable
from ampscaler.conformance.contract.s06_common import (
    BAD_NEW_SCALE,
    CLOSURE,
    INF,
    NOTHING_TO_STEP_BY,
    NOTHING_TO_UPDATE_BY,
    STEPPED_TWICE,
    TRACKER_BEFORE_SCALE,
    UNSCALED_LATE,
    UNSCALED_TWICE,
    ScalesItself,
    Steps,
    never_scaled,
)
from ampscaler.conformance.contract.s14_errors import BACKOFF, EMPTY_STATE, GROWTH, NO_TENSORS, PICKLED_MIDWAY
from ampscaler.conformance.registry import behaviour

RAISED_WITHOUT_ASSERT = [
    ["growth factor", "AssertionError", GROWTH],
    ["backoff factor", "AssertionError", BACKOFF],
    ["unscale_ before scale", "AssertionError", never_scaled("unscale_")],
    ["step before scale", "AssertionError", never_scaled("step")],
    ["update before scale", "AssertionError", never_scaled("update")],
    ["outputs", "ValueError", NO_TENSORS],
    ["no tensor", "AssertionError", "expected param to be torch.Tensor, got int"],
    ["nothing to step by", "AssertionError", NOTHING_TO_STEP_BY],
    ["nothing to update by", "AssertionError", NOTHING_TO_UPDATE_BY],
    ["half", "ValueError", "Attempting to unscale FP16 gradients."],
    ["new scale with two elements", "AssertionError", BAD_NEW_SCALE],
    ["new scale with gradient", "AssertionError", BAD_NEW_SCALE],
    ["new scale elsewhere", "AssertionError", BAD_NEW_SCALE],
    ["empty state", "RuntimeError", EMPTY_STATE],
    ["closure", "RuntimeError", CLOSURE],
    ["second unscale_", "RuntimeError", UNSCALED_TWICE],
    ["unscale_ after step", "RuntimeError", UNSCALED_LATE],
    ["second step", "RuntimeError", STEPPED_TWICE],
]
RAISED_WITHOUT_ASSERT_BY_PRIVATE_NAMES = [
    ["tracker before scale", "AssertionError", TRACKER_BEFORE_SCALE],
    ["check without scale", "AssertionError", never_scaled("_check_inf_per_device")],
    ["pickle", "AssertionError", PICKLED_MIDWAY],
]


def _attempt(raised: list[list[str]], what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    try:
        function(*args, **kwargs)
    except Exception as error:
        raised.append([what, type(error).__name__, str(error)])
    else:
        raised.append([what, "", ""])


def _optimizer(device: torch.device, gradient: float | None, dtype: torch.dtype = torch.float32) -> Steps:
    # No optimizer of torch: making the first one loads the compiler, which takes as long as torch itself.
    parameter = torch.nn.Parameter(torch.ones(1, dtype=dtype, device=device))
    parameter.grad = None if gradient is None else torch.full((1,), gradient, dtype=dtype, device=device)
    return Steps(parameter)


def _misuse(make: Callable[..., Any], device: torch.device) -> list[list[str]]:
    """What the misuses of RAISED_WITHOUT_ASSERT raise."""
    raised: list[list[str]] = []
    _attempt(raised, "growth factor", make, device=device.type, growth_factor=1.0)
    _attempt(raised, "backoff factor", make, device=device.type, backoff_factor=1.0)
    scaler, optimizer, one = make(device=device.type), _optimizer(device, 4.0), torch.ones((), device=device)
    _attempt(raised, "unscale_ before scale", scaler.unscale_, optimizer)
    _attempt(raised, "step before scale", scaler.step, optimizer)
    _attempt(raised, "update before scale", scaler.update)
    _attempt(raised, "outputs", scaler.scale, 3)
    scaler.scale(one)
    _attempt(raised, "no tensor", scaler.unscale_, Steps(3))
    _attempt(raised, "nothing to step by", scaler.step, _optimizer(device, None))
    _attempt(raised, "nothing to update by", scaler.update)
    _attempt(raised, "half", scaler.unscale_, _optimizer(device, 4.0, torch.float16))
    _attempt(raised, "new scale with two elements", scaler.update, torch.ones(2, device=device))
    _attempt(raised, "new scale with gradient", scaler.update, torch.ones((), device=device, requires_grad=True))
    _attempt(raised, "new scale elsewhere", scaler.update, torch.ones((), device="meta"))
    _attempt(raised, "empty state", scaler.load_state_dict, {})
    _attempt(raised, "closure", scaler.step, optimizer, closure=None)
    scaler.unscale_(optimizer)
    _attempt(raised, "second unscale_", scaler.unscale_, optimizer)
    scaler.step(optimizer)
    _attempt(raised, "unscale_ after step", scaler.unscale_, optimizer)
    _attempt(raised, "second step", scaler.step, optimizer)
    return raised


def _misuse_private_names(make: Callable[..., Any], device: torch.device) -> list[list[str]]:
    """What the misuses of RAISED_WITHOUT_ASSERT_BY_PRIVATE_NAMES raise."""
    raised: list[list[str]] = []
    scaler, optimizer = make(device=device.type), _optimizer(device, 4.0)
    scaler._growth_tracker = torch.zeros((), dtype=torch.int32, device=device)
    _attempt(raised, "tracker before scale", scaler.scale, torch.ones((), device=device))
    _attempt(raised, "check without scale", scaler._check_inf_per_device, optimizer)
    scaler._growth_tracker = None
    scaler.scale(torch.ones((), device=device))
    scaler.unscale_(optimizer)
    _attempt(raised, "pickle", scaler.__getstate__)
    return raised


def _find(module: str, qualified_name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in qualified_name.split("."):
        found = getattr(found, part)
    return found


def misuse_in_another_process(module: str, qualified_name: str, device: str, private: str) -> None:
    """Entry of the process of S14.2: prints, as JSON, whether assert statements run, and what the misuses raise."""
    make = _find(module, qualified_name)
    raised = _misuse(make, torch.device(device))
    if private == "private":
        raised += _misuse_private_names(make, torch.device(device))
    print(json.dumps([__debug__, raised]))


@behaviour("S14.2", "The checks are explicit raises: they also work under python -O, which drops assert statements")
def checks_survive_dash_o(case: Case) -> None:
    module, name = case.scaler_class.__module__, case.scaler_class.__qualname__
    if module == "__main__" or "<locals>" in name or _find(module, name) is not case.scaler_class:
        raise NotApplicable("another process cannot import the class by its name")
    program = f"import sys, {__name__} as here; here.{misuse_in_another_process.__name__}(*sys.argv[1:])"
    arguments = [module, name, str(case.device), "private" if case.private else "public"]
    ran = subprocess.run(
        [sys.executable, "-O", "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    case.equal(ran.returncode, 0, f"exit code of python -O, which wrote: {ran.stderr[-500:]}")
    debug, raised = json.loads(ran.stdout.splitlines()[-1])
    case.equal(debug, False, "__debug__ under -O")
    expected = RAISED_WITHOUT_ASSERT + (RAISED_WITHOUT_ASSERT_BY_PRIVATE_NAMES if case.private else [])
    for got, wanted in zip(raised, expected, strict=True):
        case.equal(got, wanted, f"error of: {wanted[0]}")


def _stage(case: Case, scaler: Any, optimizer: Any, expected: str) -> None:
    if case.private:
        case.equal(case.stage(scaler, optimizer), expected, "stage")


@behaviour(
    "S14.3",
    "Each optimizer goes from READY to UNSCALED to STEPPED on its own; any update() makes all of them READY again",
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

    ordinary, itself, unscaled = (
        case.sgd([4.0]),
        ScalesItself(case.parameter([4.0])),
        ScalesItself(case.parameter([4.0])),
    )
    scaler.unscale_(unscaled)
    for optimizer in (ordinary, itself, unscaled):
        case.optimizer(optimizer).step = broken
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
