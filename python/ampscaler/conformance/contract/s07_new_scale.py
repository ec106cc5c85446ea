"""Section 7, first part: update(new_scale)."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, NAN
from ampscaler.conformance.tools_texts import (
    BAD_NEW_SCALE,
    NO_ROOM_FOR_ONE,
    NOTHING_TO_UPDATE_BY,
    STEPPED_TWICE,
    TOO_LARGE,
    never_scaled,
)

NO_TENSOR = re.compile("has no attribute '(device|type)'$")


class _Float(float):
    """A float that is not of the type float, as np.float64 is."""


@behaviour(
    "S7.1",
    "update() returns None if disabled, else raises AssertionError if scale() was never called, also when a new "
    "scale is given",
)
def update_needs_a_scale(case: Case) -> None:
    disabled = case.new_scaler(enabled=False)
    for argument in (None, 8.0, 8, "8", [8.0], case.tensor([1.0, 2.0])):
        case.equal(disabled.update(argument), None, "result when disabled")
    case.equal(disabled.update(), None, "result when disabled")
    case.equal(disabled.get_scale(), 1.0, "scale when disabled")

    scaler = case.new_scaler(4.0)
    for arguments in ((), (None,), (8.0,), (8,), ("8",), (1e39,), (case.tensor([1.0, 2.0]),)):
        case.raises(AssertionError, never_scaled("update"), scaler.update, *arguments)
    case.equal(scaler.get_scale(), 4.0, "scale")
    scaler.scale(case.tensor(1.0))
    case.equal(scaler.update(8.0), None, "result")
    case.equal(scaler.update(new_scale=16.0), None, "result, given by name")
    case.equal(scaler.get_scale(), 16.0, "scale")
    if case.private:
        scaler._growth_tracker = None
        case.raises(AssertionError, never_scaled("update", "_growth_tracker"), scaler.update, 8.0)


def _floats() -> list[tuple[float, float]]:
    values = [(8.0, 8.0), (0.0, 0.0), (-2.0, -2.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e-46, 0.0)]
    values += [(0.1, 0.10000000149011612), (_Float(3.0), 3.0)]
    if importlib.util.find_spec("numpy"):
        import numpy as np

        values.append((np.float64(5.0), 5.0))
    return values


@behaviour(
    "S7.2",
    "update(float) fills the scale in place with the float, be it zero, negative, inf, NaN or of a subclass; 1e-46 "
    "becomes 0",
)
def a_float_becomes_the_scale(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    for given, expected in _floats():
        scaler.update(given)
        case.equal(scaler.get_scale(), expected, f"scale after update({given!r})")
        case.equal(scaler.scale(case.tensor(1.0)), case.tensor(expected), f"loss 1 at the scale {given!r}")
        if case.private:
            before, version = scaler._scale, scaler._scale._version
            scaler.update(given)
            case.same(scaler._scale, before, "_scale")
            case.equal(before._version, version + 1, "version of _scale")


@behaviour(
    "S7.3",
    "update() raises RuntimeError for a float that float32 cannot hold, such as 1e39; the scale and the recorded "
    "flags stay",
)
def a_float_beyond_float32_is_refused(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd([INF])
    scaler.step(optimizer)
    for value in (1e39, -1e39):
        case.raises(RuntimeError, TOO_LARGE, scaler.update, value)
    case.equal(scaler.get_scale(), 4.0, "scale")
    case.raises(RuntimeError, STEPPED_TWICE, scaler.step, optimizer)
    scaler.update()
    case.equal(scaler.get_scale(), 2.0, "scale after an update by the flags")


@behaviour(
    "S7.4",
    "update() raises AttributeError for an int, bool, str, list or np.float32, which is neither a float nor a tensor",
)
def no_other_number_is_taken(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    scaler.step(case.sgd([INF]))
    values: list[tuple[Any, str]] = [(8, "int"), (True, "bool"), ("8", "str"), ([8.0], "list")]
    for value, name in values:
        case.raises(AttributeError, f"'{name}' object has no attribute 'device'", scaler.update, value)
    if importlib.util.find_spec("numpy"):
        import numpy as np

        case.raises(AttributeError, NO_TENSOR, scaler.update, np.float32(8.0))
    case.equal(scaler.get_scale(), 4.0, "scale")
    scaler.update()
    case.equal(scaler.get_scale(), 2.0, "scale after an update by the flags")


@behaviour(
    "S7.5",
    "update() raises AssertionError for a tensor whose device type is not equal to the constructor's device as "
    "given: with 'cpu:0' or a torch.device every tensor is refused, while floats work",
)
def the_device_of_a_new_scale_is_compared_as_given(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    for elsewhere in {"cpu", "meta"} - {case.device.type}:
        for shape in ((), (1,), (2,)):
            case.raises(AssertionError, BAD_NEW_SCALE, scaler.update, torch.ones(shape, device=elsewhere))
    case.equal(scaler.get_scale(), 4.0, "scale")
    scaler.update(case.tensor(8.0))
    case.equal(scaler.get_scale(), 8.0, "scale after a tensor on the right device")
    if case.private:
        scaler._device = "elsewhere"
        case.raises(AssertionError, BAD_NEW_SCALE, scaler.update, case.tensor(16.0))
    for device in (
        f"{case.device.type}:0",
        torch.device(case.device.type),
        torch.device(case.device.type, 0),
        "cuda:0",
    ):
        scaler = case.ready_scaler(4.0, device=device)
        scaler.update(8.0)
        case.equal(scaler.get_scale(), 8.0, f"scale after update(8.0) with device {device!r}")
        case.raises(AssertionError, BAD_NEW_SCALE, scaler.update, case.tensor(16.0))


@behaviour("S7.6", "update() raises AssertionError for a tensor that has not exactly one element or requires grad")
def a_new_scale_is_one_constant(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    scaler.step(case.sgd([INF]))
    leaf = case.tensor(8.0).requires_grad_()
    for tensor in (case.tensor([]), case.tensor([8.0, 8.0]), case.tensor([[8.0], [8.0]]), leaf, leaf * 1):
        case.raises(AssertionError, BAD_NEW_SCALE, scaler.update, tensor)
        with torch.no_grad():
            case.raises(AssertionError, BAD_NEW_SCALE, scaler.update, tensor)
    case.equal(scaler.get_scale(), 4.0, "scale")
    scaler.update(leaf.detach())
    case.equal(scaler.get_scale(), 8.0, "scale after the detached leaf")


@behaviour(
    "S7.7",
    "update() copies a 0-dim tensor of any dtype with a cast: float64 1e39 becomes inf, a complex number its real part",
)
def a_scalar_tensor_is_cast(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    integers = (
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
    )
    values: list[tuple[Any, torch.dtype, float]] = [(7, dtype, 7.0) for dtype in integers]
    values += [(3.0, dtype, 3.0) for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)]
    values += [(3.0, dtype, 3.0) for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)]
    values += [(True, torch.bool, 1.0), (False, torch.bool, 0.0), (2**24 + 1, torch.int64, 16777216.0)]
    values += [(0.1, torch.float64, 0.10000000149011612), (1e39, torch.float64, INF), (-1e39, torch.float64, -INF)]
    values += [
        (1e-46, torch.float64, 0.0),
        (-2.0, torch.float32, -2.0),
        (INF, torch.float16, INF),
        (NAN, torch.float32, NAN),
    ]
    values += [(2 + 3j, torch.complex64, 2.0), (-1 + 5j, torch.complex128, -1.0)]
    for value, dtype, expected in values:
        scaler.update(case.tensor(value, dtype))
        case.equal(scaler.get_scale(), expected, f"scale after update(tensor({value}, {dtype}))")
        case.equal(
            scaler.scale(case.tensor(1.0)), case.tensor(expected), f"loss 1 at the scale tensor({value}, {dtype})"
        )


@behaviour(
    "S7.8",
    "update() raises RuntimeError for a tensor of shape (1,) or (1, 1), which passes the check but does not fit",
)
def one_element_with_dimensions_does_not_fit(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd([INF])
    scaler.step(optimizer)
    case.raises(RuntimeError, NO_ROOM_FOR_ONE, scaler.update, case.tensor([8.0]))
    case.raises(RuntimeError, NO_ROOM_FOR_ONE.replace("[1]", "[1, 1]"), scaler.update, case.tensor([[8.0]]))
    case.equal(scaler.get_scale(), 4.0, "scale")
    case.raises(RuntimeError, STEPPED_TWICE, scaler.step, optimizer)
    scaler.update()
    case.equal(scaler.get_scale(), 2.0, "scale after an update by the flags")


@behaviour(
    "S7.9",
    "update(new_scale) leaves the growth tracker, discards the recorded flags, and copies the given tensor; of the "
    "scaler's attributes it touches no others",
)
def a_new_scale_only_sets_the_scale(case: Case) -> None:
    for given in (16.0, case.tensor(16.0)):
        scaler = case.ready_scaler(4.0, growth_interval=3)
        scaler.step(case.sgd([4.0]))
        scaler.update()
        overflowed = case.sgd([INF])
        scaler.step(overflowed)
        scaler.update(given)
        case.equal(scaler.get_scale(), 16.0, "scale")
        case.equal(case.growth_tracker(scaler), 1, "growth tracker")
        case.raises(AssertionError, NOTHING_TO_UPDATE_BY, scaler.update)
        scaler.step(case.sgd([4.0]))
        scaler.update()
        case.equal(case.growth_tracker(scaler), 2, "growth tracker after a clean iteration")
        scaler.step(case.sgd([4.0]))
        scaler.update()
        case.equal(scaler.get_scale(), 32.0, "scale after the third clean iteration")
        case.equal(given if isinstance(given, float) else given.item(), 16.0, "what was given")
    given = case.tensor(2.0)
    scaler.update(given)
    given.fill_(100.0)
    case.equal(scaler.get_scale(), 2.0, "scale after the given tensor was changed")
    if case.private:
        case.true(scaler._scale is not given, "_scale is another tensor than the given one")
        case.true(scaler._scale.data_ptr() != given.data_ptr(), "_scale has memory of its own")
        _other_attributes_stay(case)


def _other_attributes_stay(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    attributes = case.raw(scaler).__dict__
    before = {name: value for name, value in attributes.items() if name != "_per_optimizer_states"}
    for given in (8.0, case.tensor(16.0), None):
        scaler.step(case.sgd([INF]))
        scaler.update(given)
        after = {name: value for name, value in attributes.items() if name != "_per_optimizer_states"}
        case.equal(after, before, f"attributes after update({given})")
        case.equal(scaler._init_scale, 4.0, f"_init_scale after update({given})")
