"""What kind of optimizer a scaler has before it, and what it has done with it in this iteration.

torch keeps one dict per optimizer, by id; our own facts about the iteration are further keys in it, which torch's code
does not look at.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.amp.grad_scaler import OptState

from ampscaler import _C

State = dict[str, Any]

# 0-dim float64: what a clip has left to the optimizer's step to multiply by.
CLIP_COEFFICIENT = "ampscaler_clip_coefficient"
# 0-dim float32 flag of the clips of this iteration: where it is set, the optimizer's step must be skipped, whatever
# is found about its own gradients.
CLIP_FOUND_INF = "ampscaler_clip_found_inf"
# Weak reference to the optimizer whose entry it is.
OWNER = "ampscaler_owner"

# Optimizers whose gradients were still scaled when they last stepped. Not in torch's entries: those of a scaler that
# has not opted in to anything are torch's.
_stepped_scaled: weakref.WeakSet[Any] = weakref.WeakSet()


def remember_step(optimizer: Any, *, scaled: bool) -> None:
    """Keeps for stepped_scaled() whether an amp-aware optimizer stepped on scaled gradients."""
    with contextlib.suppress(TypeError):  # it cannot be referred to weakly, or hashed
        (_stepped_scaled.add if scaled else _stepped_scaled.discard)(optimizer)


def stepped_scaled(optimizer: Any) -> bool:
    """Whether the last step of an amp-aware optimizer found its gradients scaled."""
    return is_amp_aware(optimizer) and optimizer in _stepped_scaled


def is_amp_aware(optimizer: Any) -> bool:
    """Whether the optimizer divides by the scale and skips by itself, like torch's fused ones."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def takes_grad_scaler(optimizer: Any) -> bool:
    """Whether an amp-aware optimizer wants the scaler as an argument of step, an older protocol of torch."""
    return "grad_scaler" in inspect.signature(optimizer.step).parameters


def optimizer_list(method: str, optimizers: Any) -> list[Any]:
    """One optimizer or several, as a list. TypeError for anything else, ValueError for one that comes twice."""
    if hasattr(optimizers, "param_groups"):
        return [optimizers]
    if not isinstance(optimizers, Iterable):
        got = type(optimizers).__name__
        raise TypeError(f"{method}: optimizer: expected an optimizer or an iterable of optimizers, got {got}")
    result = list(optimizers)
    for index, optimizer in enumerate(result):
        if not hasattr(optimizer, "param_groups"):
            got = type(optimizer).__name__
            raise TypeError(f"{method}: optimizer[{index}]: expected an optimizer, got {got}")
    if len({id(optimizer) for optimizer in result}) < len(result):
        raise ValueError(f"{method}: optimizer: expected each optimizer once, got one of them twice")
    return result


def stage(state: State | None) -> OptState:
    """The stage of an optimizer, READY for one without an entry."""
    return OptState.READY if state is None else state["stage"]


def with_clip_flag(state: State | None, found: dict[Any, torch.Tensor]) -> dict[Any, torch.Tensor]:
    """What was found about the optimizer's own gradients, and what its clips have found."""
    flag = None if state is None else state.get(CLIP_FOUND_INF)
    if flag is None or not found:
        return found
    own = [found[flag.device]] if flag.device in found else []
    return {**found, flag.device: _C.combine_found_inf([*own, flag], flag.device)}


def single(method: str, optimizer: Any) -> Any:
    """One optimizer. TypeError for several, or none."""
    found = optimizer_list(method, optimizer)
    if len(found) != 1:
        raise TypeError(f"{method}: optimizer: expected an optimizer, got {len(found)} of them")
    return found[0]


def gradients(optimizers: Iterable[Any]) -> list[torch.Tensor]:
    """All gradients, for torch's own functions."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    parameters = [parameter for group in groups for parameter in group["params"]]
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
