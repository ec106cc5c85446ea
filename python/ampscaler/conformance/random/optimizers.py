"""Optimizers, and a tensor, that the random programs use besides torch's: odd, but all of them seen in the wild."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


class RaisesNowAndThen:
    """Mixed into an optimizer: raises on every second step, beginning with the first."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        if self.steps % 2:
            raise RuntimeError("this optimizer raises now and then")
        return super().step(closure)  # type: ignore[misc]


class Raising(RaisesNowAndThen, torch.optim.SGD):
    """An ordinary optimizer that raises."""


class AttributeVariant(torch.optim.SGD):
    """Handles the scale itself, by the two attributes that the scaler sets; keeps what it saw of them."""

    _step_supports_amp_scaling = True
    grad_scale: Any
    found_inf: Any

    def step(self, closure: Any = None) -> Any:
        self.seen = (self.grad_scale, self.found_inf)
        if self.found_inf != 0:
            return "skipped"
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                gradient = parameter.grad if self.grad_scale is None else parameter.grad / self.grad_scale
                parameter.data.sub_(gradient)
        return "stepped"


class RaisingAttributeVariant(RaisesNowAndThen, AttributeVariant):
    """One that handles the scale itself and raises."""


class KeywordVariant(torch.optim.SGD):
    """The older protocol: the scaler passes itself, and the optimizer asks it for what was found."""

    _step_supports_amp_scaling = True

    def step(self, closure: Any = None, *, grad_scaler: Any = None) -> Any:
        found = sum(flag.item() for flag in grad_scaler._check_inf_per_device(self).values())
        return found or super().step(closure)


class Duck:
    """No torch.optim.Optimizer: only what a scaler needs of one."""

    def __init__(self, params: list[Any]) -> None:
        self.param_groups: Any = [{"params": params}]

    def step(self, *args: Any) -> Any:
        return ("stepped", *args)


class Lazy:
    """Its parameters can be walked once per reading."""

    def __init__(self, params: list[Any]) -> None:
        self.params = params

    @property
    def param_groups(self) -> Iterator[dict[str, Any]]:
        return ({"params": iter(half)} for half in (self.params[:1], self.params[1:]))

    def step(self) -> str:
        return "stepped"


class Tagged(torch.Tensor):
    """A subclass of Tensor, as frameworks make them."""
