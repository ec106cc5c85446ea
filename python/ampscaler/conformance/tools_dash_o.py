"""What misuses of a scaler raise under python -O, which drops assert statements: tried in another process, once."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ampscaler.conformance import tools_texts as texts
from ampscaler.conformance.case import Case, Difference, NotApplicable
from ampscaler.conformance.subject import TORCH_SCALER, UnknownSubject, find_subject
from ampscaler.conformance.tools import Steps

#: What torch checks, the type of its error and the text.
RAISED: list[list[str]] = [
    ["growth factor", "AssertionError", texts.GROWTH],
    ["backoff factor", "AssertionError", texts.BACKOFF],
    ["unscale_ before scale", "AssertionError", texts.never_scaled("unscale_")],
    ["step before scale", "AssertionError", texts.never_scaled("step")],
    ["update before scale", "AssertionError", texts.never_scaled("update")],
    ["outputs", "ValueError", texts.NO_TENSORS],
    ["no tensor", "AssertionError", texts.no_tensor("int")],
    ["nothing to step by", "AssertionError", texts.NOTHING_TO_STEP_BY],
    ["nothing to update by", "AssertionError", texts.NOTHING_TO_UPDATE_BY],
    ["half", "ValueError", texts.FLOAT16],
    ["new scale with two elements", "AssertionError", texts.BAD_NEW_SCALE],
    ["new scale with gradient", "AssertionError", texts.BAD_NEW_SCALE],
    ["new scale elsewhere", "AssertionError", texts.BAD_NEW_SCALE],
    ["empty state", "RuntimeError", texts.EMPTY_STATE],
    ["closure", "RuntimeError", texts.CLOSURE],
    ["second unscale_", "RuntimeError", texts.UNSCALED_TWICE],
    ["unscale_ after step", "RuntimeError", texts.UNSCALED_LATE],
    ["second step", "RuntimeError", texts.STEPPED_TWICE],
]
#: The same for classes that have torch's private names.
RAISED_BY_PRIVATE_NAMES: list[list[str]] = [
    ["tracker before scale", "AssertionError", texts.TRACKER_BEFORE_SCALE],
    ["check without scale", "AssertionError", texts.never_scaled("_check_inf_per_device")],
    ["pickle", "AssertionError", texts.PICKLED_MIDWAY],
]


def raised_by_torch(case: Case) -> list[list[str]]:
    """What the misuses raise by torch's own class under python -O. NotApplicable if no process can tell."""
    return _raised(case)[TORCH_SCALER]


def raised_by_subject(case: Case) -> list[list[str]]:
    """What the misuses raise by the class under test under python -O. NotApplicable if no process can import it."""
    return _raised(case)[_importable_name(case)]


def _raised(case: Case) -> dict[str, list[list[str]]]:
    return _in_another_process((TORCH_SCALER, _importable_name(case)), case.device.type)


def _importable_name(case: Case) -> str:
    name = f"{case.scaler_class.__module__}:{case.scaler_class.__qualname__}"
    try:
        found = None if name.startswith("__main__:") else find_subject(name).scaler_class
    except UnknownSubject:
        found = None
    if found is not case.scaler_class:
        raise NotApplicable(f"another process cannot import {name}")
    return name


@functools.cache
def _in_another_process(names: tuple[str, ...], device: str) -> dict[str, list[list[str]]]:
    """Class name to what its misuses raise. One process serves all the classes and, being kept, all who ask."""
    program = f"import sys, {__name__} as here; here.{print_raised.__name__}(sys.argv[1], sys.argv[2:])"
    ran = subprocess.run(
        [sys.executable, "-O", "-c", program, device, *names],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if ran.returncode != 0:
        raise Difference("exit code of python -O", "0", f"{ran.returncode}; it wrote: {ran.stderr[-500:]}")
    raised: dict[str, list[list[str]]] = json.loads(ran.stdout.splitlines()[-1])
    return raised


# ---- what runs in the other process ----


def print_raised(device: str, names: Sequence[str]) -> None:
    """Entry of the other process: prints, as JSON, what the misuses of each class raise."""
    if __debug__:
        raise RuntimeError("assert statements are not dropped: run this with -O")
    # A stub: who calls a function of torch that is kept from the compiler loads it, which takes longer than torch.
    stub: Any = types.SimpleNamespace(disable=lambda function, *_, **__: function)
    sys.modules["torch._dynamo"] = torch._dynamo = stub
    print(json.dumps({name: _misuse(name, torch.device(device)) for name in names}))


def _misuse(name: str, device: torch.device) -> list[list[str]]:
    subject = find_subject(name)
    make: Callable[..., Any] = functools.partial(subject.scaler_class, device=device.type)
    raised = [*_before_scale(make, device), *_after_scale(make, device), *_by_stage(make, device)]
    return raised + (_by_private_names(make, device) if subject.is_private else [])


def _attempt(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    try:
        function(*args, **kwargs)
    except Exception as error:
        return [what, type(error).__name__, str(error)]
    return [what, "", ""]


def _optimizer(device: torch.device, gradient: float | None, dtype: torch.dtype = torch.float32) -> Steps:
    # No optimizer of torch: making the first one loads the compiler.
    parameter = torch.nn.Parameter(torch.ones(1, dtype=dtype, device=device))
    parameter.grad = None if gradient is None else torch.full((1,), gradient, dtype=dtype, device=device)
    return Steps(parameter)


def _before_scale(make: Callable[..., Any], device: torch.device) -> list[list[str]]:
    scaler, optimizer = make(), _optimizer(device, 4.0)
    return [
        _attempt("growth factor", make, growth_factor=1.0),
        _attempt("backoff factor", make, backoff_factor=1.0),
        _attempt("unscale_ before scale", scaler.unscale_, optimizer),
        _attempt("step before scale", scaler.step, optimizer),
        _attempt("update before scale", scaler.update),
        _attempt("outputs", scaler.scale, 3),
    ]


def _after_scale(make: Callable[..., Any], device: torch.device) -> list[list[str]]:
    scaler, leaf = make(), torch.ones((), device=device, requires_grad=True)
    # Named, as each must live on: an optimizer at the address of a deleted one is taken for that one.
    odd, empty, half = Steps(3), _optimizer(device, None), _optimizer(device, 4.0, torch.float16)
    scaler.scale(torch.ones((), device=device))
    return [
        _attempt("no tensor", scaler.unscale_, odd),
        _attempt("nothing to step by", scaler.step, empty),
        _attempt("nothing to update by", scaler.update),
        _attempt("half", scaler.unscale_, half),
        _attempt("new scale with two elements", scaler.update, torch.ones(2, device=device)),
        _attempt("new scale with gradient", scaler.update, leaf),
        _attempt("new scale elsewhere", scaler.update, torch.ones((), device="meta")),
        _attempt("empty state", scaler.load_state_dict, {}),
    ]


def _by_stage(make: Callable[..., Any], device: torch.device) -> list[list[str]]:
    scaler, optimizer = make(), _optimizer(device, 4.0)
    scaler.scale(torch.ones((), device=device))
    raised = [_attempt("closure", scaler.step, optimizer, closure=None)]
    scaler.unscale_(optimizer)
    raised.append(_attempt("second unscale_", scaler.unscale_, optimizer))
    scaler.step(optimizer)
    raised.append(_attempt("unscale_ after step", scaler.unscale_, optimizer))
    return [*raised, _attempt("second step", scaler.step, optimizer)]


def _by_private_names(make: Callable[..., Any], device: torch.device) -> list[list[str]]:
    scaler, optimizer = make(), _optimizer(device, 4.0)
    scaler._growth_tracker = torch.zeros((), dtype=torch.int32, device=device)
    raised = [_attempt("tracker before scale", scaler.scale, torch.ones((), device=device))]
    raised.append(_attempt("check without scale", scaler._check_inf_per_device, optimizer))
    scaler._growth_tracker = None
    scaler.scale(torch.ones((), device=device))
    scaler.unscale_(optimizer)
    return [*raised, _attempt("pickle", scaler.__getstate__)]
