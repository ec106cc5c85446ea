"""Section 12: subclasses and instance patches of other libraries, and the order of the scaler's calls that they see."""

from __future__ import annotations

from typing import Any

import torch
from torch.amp.grad_scaler import OptState

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, attribute_optimizer

WATCHED = (
    "_check_scale_growth_tracker",
    "unscale_",
    "_check_inf_per_device",
    "_unscale_grads_",
    "_maybe_opt_step",
    "_get_scale_async",
)


def _subclass(case: Case, **members: Any) -> Any:
    return type("Subclass", (case.scaler_class,), members)


def _ready(case: Case, scaler_class: Any, **options: Any) -> Any:
    scaler = case.new_scaler(4.0, of=scaler_class, **options)
    scaler.scale(case.tensor(1.0))
    return scaler


def _copied_unscale(self: Any, optimizer: Any) -> None:
    """What libraries copy from torch to allow float16 gradients: the same, but for the last argument."""
    self._check_scale_growth_tracker("unscale_")
    state = self._per_optimizer_states[id(optimizer)]
    if state["stage"] is OptState.UNSCALED:
        raise RuntimeError("called twice")
    inv_scale = self._scale.double().reciprocal().float()
    found_inf = torch.full((), 0.0, dtype=torch.float32, device=self._scale.device)
    state["found_inf_per_device"] = self._unscale_grads_(optimizer, inv_scale, found_inf, True)
    state["stage"] = OptState.UNSCALED


@behaviour(
    "S12.8",
    "Subclasses that override unscale_, _maybe_opt_step, _unscale_grads_, _check_inf_per_device, _get_scale_async "
    "or get_scale: the scaler's own methods call them through self",
    private=True,
)
def overrides_are_called(case: Case) -> None:
    scaler = _ready(case, _subclass(case, unscale_=_copied_unscale))
    optimizer = case.sgd(case.parameter([8.0], torch.float16))
    scaler.step(optimizer)
    scaler.update()
    case.equal(case.values(optimizer), [[-1.0]], "float16 parameters after step() with a copied unscale_")
    case.equal(scaler._get_growth_tracker(), 1, "growth tracker")
    _maybe_opt_step_overridden(case)
    _unscale_grads_overridden(case)
    _check_inf_per_device_overridden(case)
    _get_scale_async_overridden(case)
    _get_scale_overridden(case)


def _maybe_opt_step_overridden(case: Case) -> None:
    calls: list[Any] = []

    def always(self: Any, optimizer: Any, optimizer_state: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append((optimizer_state is self._per_optimizer_states[id(optimizer)], args, kwargs))
        return "instead"

    scaler = _ready(case, _subclass(case, _maybe_opt_step=always))
    case.equal(scaler.step(case.sgd([INF]), 1, key=2), "instead", "value of the step")
    case.equal(calls, [(True, (1,), {"key": 2})], "calls of _maybe_opt_step, with the scaler's own entry")


def _unscale_grads_overridden(case: Case) -> None:
    """No gradient is looked at: the flag is set by the override."""
    flag = case.tensor(1.0)
    scaler = _ready(case, _subclass(case, _unscale_grads_=lambda self, *args: {case.device: flag}))
    ordinary, handed = case.sgd([8.0]), attribute_optimizer(case, [8.0])
    scaler.step(ordinary)
    scaler.step(handed)
    case.equal(case.values(ordinary), [[1.0]], "parameters of a step that an override of _unscale_grads_ skips")
    case.equal(case.gradients(ordinary), [[8.0]], "gradients that an override of _unscale_grads_ leaves alone")
    case.equal(handed.handed[0].found_inf, case.tensor(1.0), "found_inf from an override of _unscale_grads_")
    case.same(scaler._found_inf_per_device(ordinary)[case.device], flag, "the recorded flag")
    scaler.update()
    case.equal(scaler.get_scale(), 2.0, "scale after the update")


def _check_inf_per_device_overridden(case: Case) -> None:
    def check(self: Any, optimizer: Any) -> Any:
        flags = {case.device: case.tensor(1.0)}
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = flags
        return flags

    scaler = _ready(case, _subclass(case, _check_inf_per_device=check))
    optimizer = attribute_optimizer(case, [8.0])
    scaler.step(optimizer)
    case.equal(optimizer.handed[0].found_inf, case.tensor(1.0), "found_inf from an override of _check_inf_per_device")


def _get_scale_async_overridden(case: Case) -> None:
    other = case.tensor(77.0)
    scaler = _ready(case, _subclass(case, _get_scale_async=lambda self: other))
    case.equal(scaler.get_scale(), 77.0, "scale with an override of _get_scale_async")
    case.equal(scaler.state_dict()["scale"], 77.0, "scale in the state_dict with an override of _get_scale_async")
    optimizer = attribute_optimizer(case, [8.0])
    scaler.step(optimizer)
    case.equal(optimizer.handed[0].grad_scale, other, "grad_scale with an override of _get_scale_async")


def _get_scale_overridden(case: Case) -> None:
    subclass = _subclass(case, get_scale=lambda self: 77.0)
    case.equal(
        _ready(case, subclass).state_dict()["scale"], 77.0, "scale in the state_dict with an override of get_scale"
    )
    pickled = case.raw(_ready(case, subclass)).__getstate__()
    case.equal(pickled["_init_scale"], 77.0, "pickled _init_scale with an override of get_scale")


def _watching(case: Case, calls: list[str]) -> Any:
    def watched(name: str) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(f"{name}({args[0]})" if name == "_check_scale_growth_tracker" else name)
            return getattr(super(subclass, self), name)(*args, **kwargs)

        return method

    subclass = _subclass(case, **{name: watched(name) for name in WATCHED})
    return subclass


def _check(name: str) -> str:
    return f"_check_scale_growth_tracker({name})"


@behaviour(
    "S12.9",
    "step() calls, in this order, its check, unscale_ with its check and _unscale_grads_, and _maybe_opt_step; for "
    "an optimizer that handles the scale its check, _check_inf_per_device with its check and _unscale_grads_, and "
    "_get_scale_async",
    private=True,
)
def own_calls_have_a_fixed_order(case: Case) -> None:
    calls: list[str] = []
    scaler = _ready(case, _watching(case, calls))
    case.equal(calls, [], "calls of scale()")
    unscale = ["unscale_", _check("unscale_"), "_unscale_grads_"]
    scaler.step(case.sgd([8.0]))
    case.equal(calls, [_check("step"), *unscale, "_maybe_opt_step"], "calls of an ordinary step")
    calls.clear()
    optimizer = case.sgd([8.0])
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    case.equal(calls, [*unscale, _check("step"), "_maybe_opt_step"], "calls of unscale_ and an ordinary step")
    check = ["_check_inf_per_device", _check("_check_inf_per_device"), "_unscale_grads_"]
    for kind in ("attribute", "fused SGD"):
        made = [
            attribute_optimizer(case, [8.0]) if kind == "attribute" else case.sgd([8.0], fused=True) for _ in range(2)
        ]
        calls.clear()
        scaler.step(made[0])
        case.equal(calls, [_check("step"), *check, "_get_scale_async"], "calls of a step that is handed the scale")
        calls.clear()
        optimizer = made[1]
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        case.equal(
            calls,
            [*unscale, _check("step"), "_get_scale_async"],
            "calls of unscale_ and a step that is handed the scale",
        )
    calls.clear()
    scaler.update()
    case.equal(calls, [_check("update")], "calls of update()")
