"""The arguments and loaded states of RobustAMPManager, checked: each function returns what the manager keeps.

Every error names the operation, the argument, what was expected and what came instead.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

_CLASS = "RobustAMPManager"
_STEP = "RobustAMPManager.training_step"
_LOAD = "RobustAMPManager.load_state_dict"

_MOST_STEPS = 1_000_000
_STATE_KEYS = ("scaler", "skip_count", "scale_history", "nonfinite_losses")


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def checked_participants(model: Any, optimizer: Any) -> None:
    """The two objects that everything is called on."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{_CLASS}: model: expected a torch.nn.Module, got {type(model).__name__}")
    missing = [name for name in ("param_groups", "step", "zero_grad") if not hasattr(optimizer, name)]
    if missing:
        got = f"{type(optimizer).__name__} without {', '.join(missing)}"
        raise TypeError(f"{_CLASS}: optimizer: expected a torch.optim.Optimizer, got {got}")


def checked_device(device: torch.device | str | None, model: torch.nn.Module) -> torch.device:
    """`device`, or that of the model's first parameter."""
    if device is not None:
        found = torch.device(device)
    else:
        parameter = next(iter(model.parameters()), None)
        if parameter is None:
            raise ValueError(f"{_CLASS}: device: expected one for a model without parameters, got None")
        found = parameter.device
    if found.type == "meta":
        raise ValueError(f"{_CLASS}: device: expected a device that holds values, got meta")
    return found


def checked_autocast_dtype(dtype: torch.dtype) -> torch.dtype:
    """float16, bfloat16 or float32."""
    if dtype not in (torch.float16, torch.bfloat16, torch.float32):
        expected = "torch.float16, torch.bfloat16 or torch.float32"
        raise ValueError(f"{_CLASS}: autocast_dtype: expected {expected}, got {dtype!r}")
    return dtype


def checked_max_norm(max_norm: float | None) -> float | None:
    """A positive number, or None."""
    if max_norm is None:
        return None
    if not _is_number(max_norm):
        raise TypeError(f"{_CLASS}: max_norm: expected a number or None, got {type(max_norm).__name__}")
    if not max_norm > 0:
        raise ValueError(f"{_CLASS}: max_norm: expected a positive number, got {max_norm}")
    return float(max_norm)


def checked_steps(steps: int) -> int:
    """An int of at least 1."""
    if not _is_int(steps):
        raise TypeError(f"{_CLASS}: accumulation_steps: expected an int, got {type(steps).__name__}")
    if steps < 1:
        raise ValueError(f"{_CLASS}: accumulation_steps: expected at least 1, got {steps}")
    if steps > _MOST_STEPS:
        raise ValueError(f"{_CLASS}: accumulation_steps: expected at most {_MOST_STEPS}, got {steps}")
    return steps


def checked_weights(weights: Sequence[float] | None, steps: int) -> tuple[float, ...]:
    """`steps` positive numbers that sum to 1; equal ones for None."""
    if weights is None:
        return (1 / steps,) * steps
    where = f"{_CLASS}: accumulation_weights"
    if not isinstance(weights, Iterable):
        raise TypeError(f"{where}: expected a sequence of numbers or None, got {type(weights).__name__}")
    values = tuple(weights)
    for index, weight in enumerate(values):
        if not _is_number(weight):
            raise TypeError(f"{where}[{index}]: expected a number, got {type(weight).__name__}")
        if not (weight > 0 and math.isfinite(weight)):
            raise ValueError(f"{where}[{index}]: expected a positive finite number, got {weight}")
    if len(values) != steps:
        raise ValueError(f"{where}: expected {steps} numbers, as many as accumulation_steps, got {len(values)}")
    total = math.fsum(values)
    if not math.isclose(total, 1.0):
        raise ValueError(f"{where}: expected numbers that sum to 1, got a sum of {total}")
    return tuple(float(weight) for weight in values)


def checked_step_idx(step_idx: int) -> int:
    """Anything that Python takes for an index, as an int."""
    try:
        return operator.index(step_idx)
    except TypeError:
        raise TypeError(f"{_STEP}: step_idx: expected an int, got {type(step_idx).__name__}") from None


def checked_loss(loss: Any) -> torch.Tensor:
    """A floating tensor with one element."""
    expected = f"{_STEP}: criterion: expected a loss that is a floating tensor with one element"
    if not isinstance(loss, torch.Tensor):
        raise ValueError(f"{expected}, got {type(loss).__name__}")
    if loss.numel() != 1 or not loss.is_floating_point():
        raise ValueError(f"{expected}, got shape {list(loss.shape)} and dtype {loss.dtype}")
    return loss


def checked_state(state_dict: Mapping[str, Any]) -> tuple[dict[str, Any], int, list[Any], list[Any]]:
    """The state of the scaler (which the scaler checks), skip_count, and copies of the two lists of records."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"{_LOAD}: state_dict: expected a mapping, got {type(state_dict).__name__}")
    for key in _STATE_KEYS:
        if key not in state_dict:
            raise KeyError(f"{_LOAD}: state_dict: expected the key {key!r}, got {list(state_dict)}")
    scaler, skip_count = state_dict["scaler"], state_dict["skip_count"]
    if not isinstance(scaler, dict):
        raise TypeError(f"{_LOAD}: scaler: expected a dict, got {type(scaler).__name__}")
    if not _is_int(skip_count):
        raise TypeError(f"{_LOAD}: skip_count: expected an int, got {type(skip_count).__name__}")
    if skip_count < 0:
        raise ValueError(f"{_LOAD}: skip_count: expected at least 0, got {skip_count}")
    scale = scaler.get("scale", 0.0)  # a missing one is for the scaler to tell
    if _is_number(scale) and not 0 <= scale < math.inf:
        raise ValueError(f"{_LOAD}: scaler: scale: expected a finite number >= 0, got {scale}")
    changes = _checked_records(state_dict, "scale_history", ("pre_scale", "post_scale", "loss"))
    losses = _checked_records(state_dict, "nonfinite_losses", ("loss",))
    return scaler, skip_count, changes, losses


def _checked_records(state_dict: Mapping[str, Any], key: str, fields: tuple[str, ...]) -> list[Any]:
    if not isinstance(state_dict[key], (list, tuple)):
        raise TypeError(f"{_LOAD}: {key}: expected a list, got {type(state_dict[key]).__name__}")
    return [_checked_record(f"{_LOAD}: {key}[{i}]", record, fields) for i, record in enumerate(state_dict[key])]


def _checked_record(where: str, record: Any, fields: tuple[str, ...]) -> dict[str, Any]:
    """A copy of a record: "step", an int, and `fields`, numbers."""
    if not isinstance(record, Mapping):
        raise TypeError(f"{where}: expected a dict, got {type(record).__name__}")
    if set(record) != {"step", *fields}:
        raise ValueError(f"{where}: expected the keys {['step', *fields]}, got {list(record)}")
    for name, value in record.items():
        if not (_is_int(value) if name == "step" else _is_number(value)):
            expected = "an int" if name == "step" else "a number"
            raise TypeError(f"{where}: {name}: expected {expected}, got {type(value).__name__}")
    return {"step": record["step"], **{field: float(record[field]) for field in fields}}
