"""Section 4: scale() of a single tensor, of what is disabled and of what cannot be scaled; backward after an update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, Operations, iterate, waiting_is_an_error
from ampscaler.conformance.tools_texts import MODIFIED, NO_TENSORS


class Marked(torch.Tensor):
    """A subclass that adds nothing: torch's products keep its type."""


@behaviour("S4.1", "A disabled scaler's scale() returns its argument, the same object, whatever it is")
def disabled_scale_returns_its_argument(case: Case) -> None:
    scaler = case.new_scaler(4.0, enabled=False)
    generator = (case.tensor(value) for value in (1.0, 2.0))
    for outputs in (case.tensor([1.0, 2.0]), [case.tensor(1.0)], (), {"loss": 1}, None, 5, "loss", object(), generator):
        case.same(scaler.scale(outputs), outputs)
    case.equal(len(list(generator)), 2, "elements left in the generator")


@behaviour(
    "S4.2",
    "scale() of a tensor returns a new tensor, its differentiable product with the scale, which is moved to its "
    "device without waiting, of its subclass; of a Parameter, a Tensor",
)
def a_tensor_is_multiplied(case: Case) -> None:
    scaler = case.ready_scaler(3000.0)
    outputs = case.tensor([1.0, -2.5, float("inf")]).requires_grad_()
    result = scaler.scale(outputs)
    case.equal(result, case.tensor([3000.0, -7500.0, float("inf")]), "product")
    case.equal(type(result), torch.Tensor, "type of the product")
    case.equal(result.grad_fn.name(), "MulBackward0", "what made the product")
    case.equal(outputs, case.tensor([1.0, -2.5, float("inf")]), "input after the call")
    case.equal(outputs._version, 0, "version of the input")
    result.backward(case.tensor([1.0, 2.0, 3.0]))
    case.equal(outputs.grad, case.tensor([3000.0, 6000.0, 9000.0]), "gradient of the input")
    case.true(not scaler.scale(case.tensor([1.0])).requires_grad, "the product of a constant is a constant")
    unit = case.ready_scaler(1.0)
    for plain in (case.tensor(1.0), case.tensor([1.0]), case.tensor([])):
        product = unit.scale(plain)
        case.true(product is not plain, "at scale 1 the product is another object than the input")
        case.true(plain.numel() == 0 or product.data_ptr() != plain.data_ptr(), "the product has memory of its own")
    case.equal(type(scaler.scale(case.tensor([1.0]).as_subclass(Marked))), Marked, "type of a subclass's product")
    case.equal(type(scaler.scale(case.parameter(None))), torch.Tensor, "type of a parameter's product")
    case.equal(scaler.scale(torch.ones(2, device="meta")), torch.empty(2, device="meta"), "product on another device")
    raw = case.raw(case.ready_scaler(4.0))
    with Operations() as operations:
        raw.scale(torch.ones(2, device="meta"))
    moves = operations.arguments_of(torch.ops.aten._to_copy.default)
    case.equal([kwargs.get("non_blocking") for _, kwargs in moves], [True], "non_blocking of the scale's move there")
    case.equal(scaler.scale(case.tensor(1.0)), case.tensor(3000.0), "product on the scale's device afterwards")


@behaviour(
    "U4.2",
    "A scale on the CPU reaches a loss on a CUDA device without waiting for the device",
    proven_on=(),
    only_on="cuda",
)
def a_scale_moves_without_waiting(case: Case) -> None:
    scaler = case.new_scaler(4.0)
    scaler.scale(torch.ones(()))
    loss = case.tensor([1.0, 2.0])
    with waiting_is_an_error(case.device):
        result = scaler.scale(loss)
    case.equal(result, case.tensor([4.0, 8.0]))


@behaviour(
    "S4.11",
    "scale() of a tensor saves the scale itself for backward, which raises RuntimeError after any update() or "
    "load_state_dict(), even to the same value",
)
def a_late_backward_raises(case: Case) -> None:
    changes: dict[str, Callable[[Any], Any]] = {
        "update() that backs off": lambda scaler: iterate(case, scaler, INF),
        "update() that leaves the value": lambda scaler: iterate(case, scaler, 4.0),
        "update(8.0)": lambda scaler: scaler.update(8.0),
        "update(4.0), the same value": lambda scaler: scaler.update(4.0),
        "update(tensor)": lambda scaler: scaler.update(case.tensor(8.0)),
        "load_state_dict of its own state": lambda scaler: scaler.load_state_dict(scaler.state_dict()),
    }
    for what, change in changes.items():
        scaler = case.ready_scaler(4.0)
        weight = case.parameter(None)
        early, late = scaler.scale(weight.sum()), scaler.scale(weight.sum())
        early.backward()
        case.equal(weight.grad, case.tensor([4.0, 4.0]), "gradient of a backward in time")
        address, version = late.grad_fn._saved_other.data_ptr(), late.grad_fn._saved_other._version
        if case.private:
            case.equal(address, scaler._scale.data_ptr(), "address of the scale that backward has saved")
        change(scaler)
        case.raises(RuntimeError, MODIFIED, late.backward)
        if case.private:
            case.equal(scaler._scale.data_ptr(), address, f"address of the scale after {what}")
            case.true(scaler._scale._version > version, f"{what} bumps the version counter of the scale")
        case.equal(weight.grad, case.tensor([4.0, 4.0]), f"gradient after the backward that failed ({what})")


@behaviour("S4.16", "scale() of what is neither a tensor nor iterable raises ValueError, alone or inside a container")
def anything_else_is_refused(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    for outputs in (None, 5, 1.5, True, 1j, object(), torch.float32, len):
        case.raises(ValueError, NO_TENSORS, scaler.scale, outputs)
        case.raises(ValueError, NO_TENSORS, scaler.scale, [case.tensor(1.0), outputs])
        case.raises(ValueError, NO_TENSORS, scaler.scale, ((outputs,),))
    case.equal(scaler.scale(case.tensor(1.0)), case.tensor(4.0), "a loss after the errors")
