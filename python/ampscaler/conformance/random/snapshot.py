"""What can be seen of a world, as texts: {expression: how `show` writes its value}. A script can print the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from ampscaler.conformance.values import step_value

#: How deep containers are shown: a scaled str is a lazy map of maps without end.
DEPTH = 6
#: Attributes of optimizers that are shown. Containers are left out: param_groups and defaults are arguments, and the
#: state is shown by parameter.
PLAIN = (torch.Tensor, bool, int, float, str, type(None), tuple)
IDENTITIES = ("_scale", "_growth_tracker", "_per_optimizer_states")
PUBLIC = ("is_enabled", "get_scale", "state_dict")

Seen = dict[str, str]


def show(value: Any, depth: int = DEPTH) -> str:
    """One text per value; equal texts mean equal values: tensors to the bit (NaN aside), with stride and version."""
    if value is None or isinstance(value, (bool, float)):
        return repr(value)
    if isinstance(value, torch.Tensor):
        return _show_tensor(value)
    if isinstance(value, int) and -(10**9) < value < 10**9:  # larger ones may be ids
        return repr(value)
    if isinstance(value, (str, int)):
        return value_text(repr(value))
    if depth == 0:
        return "..."
    name = type(value).__name__
    if isinstance(value, dict):
        items = ", ".join([f"{show(key, depth - 1)}: {show(item, depth - 1)}" for key, item in value.items()])
        return f"{name}({{{items}}})"
    if isinstance(value, (list, tuple)):
        return f"{name}({', '.join([show(item, depth - 1) for item in value])})"
    if isinstance(value, BaseException):
        return f"{name}: {value_text(value)}"
    if step_value(value) is not value:
        return show(step_value(value), depth - 1)
    return value_text(f"{name} {value}")


_ADDRESS = re.compile(r"0x[0-9a-f]+|\b\d{14,}\b")


def value_text(value: Any) -> str:
    """The text of a value without addresses, as hexadecimal numbers or as ids."""
    text = str(value)
    return _ADDRESS.sub("(address)", text) if len(text) > 10 else text


def _show_tensor(tensor: torch.Tensor) -> str:
    kind = f"{type(tensor).__name__} {str(tensor.dtype)[6:]}"
    extra = ", requires_grad" if tensor.requires_grad else ""
    if tensor.grad_fn is not None:
        extra += f", {tensor.grad_fn.name()}"
    if tensor.device.type != "cpu":
        extra += f", {tensor.device}"
    if tensor.is_sparse:
        parts = f"indices={tensor._indices().tolist()}, values={_show_tensor(tensor._values().detach())}"
        return f"{kind}({parts}, shape={tuple(tensor.shape)}, coalesced={tensor.is_coalesced()}{extra})"
    try:
        data = "" if tensor.device.type == "meta" else str(tensor.tolist())
    except Exception as error:  # a negative view of float8, which torch cannot list
        data = type(error).__name__
    version = "inference" if tensor.is_inference() else f"version {tensor._version}"
    return f"{kind}({data}, shape={tuple(tensor.shape)}, stride={tensor.stride()}, {version}{extra})"


def entries(scaler: Any, **optimizers: Any) -> dict[str, Any]:
    """The scaler's per-optimizer entries in order, by the names of the optimizers."""
    names = {id(optimizer): name for name, optimizer in optimizers.items()}
    return {names.get(key, "another"): entry for key, entry in scaler._per_optimizer_states.items()}


def see(names: Mapping[str, Any], private: bool) -> tuple[Seen, dict[str, Any]]:
    """Of the scalers, optimizers, parameters and so on in a namespace: what can be seen, and objects by expression.

    The objects are those whose identity matters. `private`: see also torch's private names.
    """
    seen: Seen = {}
    objects: dict[str, Any] = {}
    # Programs name optimizers o0, o1, ... and parameters p0, p1, ...
    numbered = {name: value for name, value in names.items() if len(name) == 2}
    optimizers = {name: value for name, value in numbered.items() if name[0] == "o"}
    parameters = {name: value for name, value in numbered.items() if name[0] == "p"}
    for name in ("scaler", "other"):
        if name in names and private:
            _see_scaler(name, names[name], optimizers, seen, objects)
        elif name in names:
            seen |= {f"{name}.{getter}()": _show_answer(names[name], getter) for getter in PUBLIC}
    for name, parameter in parameters.items():
        seen[name] = show(parameter)
        seen[f"{name}.grad"] = show(parameter.grad)
        objects[f"{name}.grad"] = parameter.grad
    for name, optimizer in optimizers.items():
        _see_optimizer(name, optimizer, parameters, seen)
    if names["calls"]:
        seen["calls"] = show(names["calls"])
    return seen, objects


def _show_answer(scaler: Any, getter: str) -> str:
    try:
        return show(getattr(scaler, getter)())
    except Exception as error:
        return show(error)


def _see_scaler(name: str, scaler: Any, optimizers: Mapping[str, Any], seen: Seen, objects: dict[str, Any]) -> None:
    attributes = vars(scaler)
    for key, value in attributes.items():
        if key == "_per_optimizer_states":
            arguments = ", ".join([name, *(f"{optimizer}={optimizer}" for optimizer in optimizers)])
            seen[f"entries({arguments})"] = show(entries(scaler, **optimizers))
        elif not callable(value):
            seen[f"{name}.{key}"] = show(value)
    for key in IDENTITIES:
        if key in attributes:
            objects[f"{name}.{key}"] = attributes[key]


def _see_optimizer(name: str, optimizer: Any, parameters: Mapping[str, Any], seen: Seen) -> None:
    attributes = vars(optimizer)
    for key, value in attributes.items():
        if isinstance(value, PLAIN):
            seen[f"{name}.{key}"] = show(value)
    state = attributes.get("state")
    if state:
        for parameter, value in parameters.items():
            if value in state:
                seen[f"{name}.state.get({parameter})"] = show(state[value])
