"""Error texts, stand-in optimizers and a count of host reads, for the behaviours of sections 6, 7 and 14."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

INF, NAN = float("inf"), float("nan")

CLOSURE = "Closure use is not currently supported if GradScaler is enabled."
STEPPED_TWICE = "step() has already been called since the last update()."
UNSCALED_TWICE = "unscale_() has already been called on this optimizer since the last update()."
UNSCALED_LATE = "unscale_() is being called after step()."
NOTHING_TO_STEP_BY = "No inf checks were recorded for this optimizer."
NOTHING_TO_UPDATE_BY = "No inf checks were recorded prior to update."
BAD_NEW_SCALE = (
    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with requires_grad=False."
)
TRACKER_BEFORE_SCALE = "_growth_tracker initialized before _scale"
TOO_LARGE = "value cannot be converted to type float without overflow"
NO_ROOM_FOR_ONE = "output with shape [] doesn't match the broadcast shape [1]"
MODIFIED = re.compile(
    r"^one of the variables needed for gradient computation has been modified by an inplace operation"
)


def never_scaled(method: str, attribute: str = "_scale") -> str:
    """The text of a method that needs a scale() before it."""
    return (
        f"Attempted {method} but {attribute} is None.  This may indicate your script did not use "
        "scaler.scale(loss or outputs) earlier in the iteration."
    )


class Steps:
    """Has only what a scaler needs of an optimizer: param_groups and step. Notes how it was stepped."""

    def __init__(self, *parameters: Any, result: Any = None) -> None:
        self.param_groups: Any = [{"params": list(parameters)}]
        self.result = result
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def step(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        return self.result


class ScalesItself(Steps):
    """Handles scale and flag by itself; notes what it was handed at every step."""

    _step_supports_amp_scaling: Any = True

    def __init__(self, *parameters: Any, result: Any = None) -> None:
        super().__init__(*parameters, result=result)
        self.handed: list[tuple[Any, Any]] = []

    def step(self, *args: Any, **kwargs: Any) -> Any:
        self.handed.append((getattr(self, "grad_scale", "unset"), getattr(self, "found_inf", "unset")))
        return super().step(*args, **kwargs)


class HostReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that make the host wait for a value: item(), bool(), equal(), copies to the CPU."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.count += func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
        if func is torch.ops.aten._to_copy.default:
            self.count += args[0].device.type != "cpu" and result.device.type == "cpu"
        return result


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps every operation that reaches the dispatcher, as (operator, args, kwargs)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def arguments_of(self, operator: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """The arguments of every call of one operator."""
        return [(args, kwargs) for function, args, kwargs in self.seen if function is operator]
