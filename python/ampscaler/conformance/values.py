"""How values are compared and shown: tensors by bits, dtype, shape and device; everything else by type and value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch


def bits(tensor: torch.Tensor) -> bytes:
    """The elements in logical order, as bytes.

    The payload of a NaN does not count, since torch's own vector and scalar loops differ in it; of float8 and complex
    numbers, which no loop of ours computes, it does.
    """
    values = tensor.detach().resolve_conj().resolve_neg().cpu()
    if values.is_floating_point() and values.element_size() > 1:
        values = torch.where(values.isnan(), torch.full((), torch.nan, dtype=values.dtype), values)
    return bytes(values.contiguous().flatten().view(torch.uint8).tolist())


def canonical(value: Any) -> Any:
    """A value that compares with == exactly when the contract calls two values equal."""
    if isinstance(value, torch.Tensor):
        return _canonical_tensor(value)
    if isinstance(value, dict):
        return (type(value).__name__, [(canonical(key), canonical(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [canonical(item) for item in value])
    if isinstance(value, (float, complex)):
        return (type(value).__name__, repr(value))
    if value is None or isinstance(value, (bool, int, str, bytes, type, torch.dtype, torch.device)):
        return (type(value).__name__, str(value))
    return ("object", id(value))


def _canonical_tensor(tensor: torch.Tensor) -> Any:
    head = ("tensor", str(tensor.dtype), tuple(tensor.shape), str(tensor.device), str(tensor.layout))
    if tensor.device.type == "meta":
        return head
    if tensor.layout == torch.sparse_coo:
        return (*head, bits(tensor._indices()), bits(tensor._values()), tensor.is_coalesced())
    return (*head, bits(tensor))


def show(value: Any, show_item: Callable[[Any], str] | None = None) -> str:
    """One line for a report. `show_item` shows what is inside containers; show itself by default."""
    inside = show_item or show
    if isinstance(value, torch.Tensor):
        return _show_tensor(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{inside(key)}: {inside(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(inside(item) for item in value)}]"
    if isinstance(value, tuple):
        return f"({', '.join(inside(item) for item in value)}{',' * (len(value) == 1)})"
    try:
        return without_addresses(str(value) if isinstance(value, type) else repr(value))[:200]
    except Exception as error:
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


def _show_tensor(tensor: torch.Tensor) -> str:
    if tensor.device.type == "meta":
        return f"tensor(shape={tuple(tensor.shape)}, dtype={tensor.dtype}, device='meta')".replace("torch.", "")
    detached = tensor.detach()
    if type(detached) is not torch.Tensor:  # its own methods may not work here: DTensor, fake, wrappers
        return f"{type(detached).__name__}(shape={tuple(tensor.shape)}, dtype={tensor.dtype})".replace("torch.", "")
    data = detached.tolist() if detached.layout == torch.strided and detached.numel() <= 8 else None
    text = f"tensor({data}" if data is not None else re.sub(r"\s+", " ", repr(detached))[:100].removesuffix(")")
    device = "" if tensor.device.type == "cpu" else f", device='{tensor.device}'"
    return f"{text}, dtype={str(tensor.dtype).removeprefix('torch.')}{device})"


def step_value(result: Any) -> Any:
    """What the optimizer's step returned: `result`, or its `value` for scalers whose step returns a report."""
    return result.value if hasattr(result, "outcome") and hasattr(result, "value") else result


def without_addresses(text: str) -> str:
    """The text with object addresses blanked, so that two runs read alike."""
    return re.sub(r"0x[0-9a-f]+", "0x…", text)
