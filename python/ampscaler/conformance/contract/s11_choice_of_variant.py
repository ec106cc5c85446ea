"""Section 11: which optimizers handle the scale themselves, and the older way to do so, by a keyword of their step."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import MISSING, KeywordOptimizer, attribute_optimizer, fused_names
from ampscaler.conformance.tools_texts import NOTHING_TO_UPDATE_BY, PASSING_ITSELF, STEPPED_TWICE

WARNING = (
    FutureWarning,
    PASSING_ITSELF,
)


def _keyword_optimizer(case: Case) -> Any:
    return case.optimizer(KeywordOptimizer(case.parameter([8.0])))


@behaviour(
    "S11.1",
    "Any truthy _step_supports_amp_scaling makes an optimizer handle the scale itself; torch's Adam, AdamW and SGD "
    "with fused=True set it, Adagrad with fused=True in some versions of torch, the other ones do not",
)
def a_true_attribute_decides(case: Case) -> None:
    for flag in (True, 1, "no", [0], object()):
        optimizer = attribute_optimizer(case, [8.0])
        optimizer._step_supports_amp_scaling = flag
        case.ready_scaler(4.0).step(optimizer)
        case.equal(optimizer.handed[0].grad_scale, case.tensor(4.0), f"grad_scale if the attribute is {flag!r}"[:50])
    for flag in (False, 0, "", None, []):
        optimizer = attribute_optimizer(case, [8.0])
        optimizer._step_supports_amp_scaling = flag
        case.ready_scaler(4.0).step(optimizer)
        case.equal(optimizer.handed[0].grad_scale, MISSING, f"grad_scale if the attribute is {flag!r}")
        case.equal(optimizer.handed[0].gradients, [case.tensor([2.0])], f"gradients if the attribute is {flag!r}")
    for name in ("Adam", "AdamW", "SGD"):
        case.equal(_is_handed_the_scale(case, name, fused=True), True, f"fused {name} is handed the scale")
        case.equal(_is_handed_the_scale(case, name), False, f"{name} is handed the scale")
    sets_it = "Adagrad" in fused_names(case)
    case.equal(_is_handed_the_scale(case, "Adagrad", fused=True), sets_it, "fused Adagrad is handed the scale")
    for name in ("Adagrad", "NAdam", "RMSprop", "Adafactor", "Muon"):
        if hasattr(torch.optim, name):
            case.equal(_is_handed_the_scale(case, name), False, f"{name} is handed the scale")


def _is_handed_the_scale(case: Case, name: str, **options: Any) -> bool:
    optimizer = case.optimizer(getattr(torch.optim, name)([case.parameter([[8.0, 8.0]])], **options))
    seen: list[Any] = []
    optimizer.register_step_pre_hook(lambda o, *_: seen.append((getattr(o, "grad_scale", None), case.gradients(o))))
    case.ready_scaler(4.0).step(optimizer)
    grad_scale, gradients = seen[0]
    case.equal(
        gradients, [[[8.0, 8.0]]] if grad_scale is not None else [[[2.0, 2.0]]], f"gradients that {name} is given"
    )
    return grad_scale is not None


@behaviour(
    "S11.2",
    "An optimizer that handles the scale itself and whose step has a parameter grad_scaler, also behind "
    "functools.wraps, is passed the scaler by that name, with a FutureWarning on every call and without any check",
)
def a_keyword_optimizer_gets_the_scaler(case: Case) -> None:
    _what_has_no_such_keyword(case)
    scaler = case.ready_scaler(4.0)
    optimizer = _keyword_optimizer(case)
    value = case.returned(case.warns([WARNING], scaler.step, optimizer, 1, key=2))
    case.equal(value, "the optimizer's value", "value of the step")
    handed = optimizer.handed[0]
    case.same(handed.kwargs.pop("grad_scaler"), scaler, "grad_scaler")
    case.equal((handed.args, handed.kwargs), ((1,), {"key": 2}), "other arguments")
    case.equal((handed.grad_scale, handed.found_inf), (MISSING, MISSING), "grad_scale and found_inf during the step")
    case.equal(handed.gradients, [case.tensor([8.0])], "gradients")
    case.raises(RuntimeError, STEPPED_TWICE, scaler.step, optimizer)
    case.raises(AssertionError, NOTHING_TO_UPDATE_BY, scaler.update)
    scaler.update(4.0)
    scaler.unscale_(optimizer)
    case.warns([WARNING], scaler.step, optimizer)  # once more: it is given on every call
    case.same(optimizer.handed[1].kwargs["grad_scaler"], scaler, "grad_scaler after unscale_")
    case.equal(optimizer.handed[1].gradients, [case.tensor([2.0])], "gradients after unscale_")
    scaler.update()
    original = optimizer.step
    for _ in range(2):
        optimizer.step = functools.wraps(optimizer.step)(lambda *args, **kwargs: original(*args, **kwargs))
    case.warns([WARNING], scaler.step, optimizer)
    case.same(optimizer.handed[2].kwargs["grad_scaler"], scaler, "grad_scaler through two functools.wraps")
    if case.private:
        _no_check_is_made(case)


def _what_has_no_such_keyword(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = attribute_optimizer(case, [8.0])
    case.warns([], scaler.step, optimizer)  # its step takes **kwargs
    case.equal(optimizer.handed[0].kwargs, {}, "keywords that a step with **kwargs is passed")
    scaler.update()
    optimizer = _keyword_optimizer(case)
    original = optimizer.step
    optimizer.step = lambda *args, **kwargs: original(*args, **kwargs)
    case.warns([], scaler.step, optimizer)
    case.equal(optimizer.handed[0].kwargs, {"grad_scaler": None}, "keywords through a bare wrapper")
    case.equal(optimizer.handed[0].grad_scale, case.tensor(4.0), "grad_scale through a bare wrapper")
    optimizer = attribute_optimizer(case, [8.0])
    optimizer.step = min
    text = re.compile("^no signature found for builtin")
    case.raises(ValueError, text, scaler.step, optimizer)
    case.raises(ValueError, text, scaler.step, optimizer)  # the stage is still READY


def _no_check_is_made(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = _keyword_optimizer(case)
    calls: list[Any] = []
    for name in ("_unscale_grads_", "_check_inf_per_device", "unscale_", "_maybe_opt_step"):
        setattr(scaler, name, lambda *args, name=name: calls.append(name))
    optimizer.during = lambda _: calls.append(case.stage(scaler, optimizer))
    scaler.step(optimizer)
    case.equal(calls, ["READY"], "the stage during the step, and the scaler's own calls")
    case.equal(case.stage(scaler, optimizer), "STEPPED", "stage")
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
    case.equal(found, {}, "recorded flags")
