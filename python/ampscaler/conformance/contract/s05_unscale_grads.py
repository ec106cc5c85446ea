"""Section 5: how the parameters are walked, which gradients are taken, how they are grouped and what comes of it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.amp.grad_scaler import OptState

from ampscaler.conformance.case import Case
from ampscaler.conformance.contract.s05_unscale import Bag
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, Operations, home, scaler_dtypes, sparse
from ampscaler.conformance.tools_texts import FLOAT16, NOTHING_TO_UPDATE_BY, no_tensor

UNSCALE = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default


class Once:
    """An iterable that counts how often it is walked, and notes whether gradients are on at each element."""

    def __init__(self, items: list[Any]) -> None:
        self.items, self.walks = items, 0
        self.grad_modes: list[bool] = []

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        for item in self.items:
            self.grad_modes.append(torch.is_grad_enabled())
            yield item


def unscale_grads(
    case: Case, scaler: Any, optimizer: Any, allow_fp16: bool = False
) -> dict[torch.device, torch.Tensor]:
    """A direct call, with the reciprocal of 4."""
    found: dict[torch.device, torch.Tensor] = scaler._unscale_grads_(
        optimizer, case.tensor(0.25), case.tensor(0.0), allow_fp16
    )
    return found


@behaviour(
    "S5.8",
    "_unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16) works on a disabled scaler and on one that was "
    "never scaled, and touches no state",
    private=True,
)
def unscale_grads_is_stateless(case: Case) -> None:
    for scaler in (case.new_scaler(enabled=False), case.new_scaler(), case.ready_scaler()):
        before = {**case.raw(scaler).__dict__}
        optimizer, used = case.sgd([8.0]), case.sgd([8.0])
        if "_per_optimizer_states" in before:
            before["_per_optimizer_states"][id(used)]["stage"] = OptState.STEPPED  # which does not matter
        entries = copy.deepcopy(before.get("_per_optimizer_states", {}))
        scale, version = copy.deepcopy(before.get("_scale")), getattr(before.get("_scale"), "_version", 0)
        found = unscale_grads(case, scaler, optimizer)
        case.equal(found, {home(case): case.tensor(0.0)})
        case.equal(case.gradients(optimizer), [[2.0]], "gradients")
        unscale_grads(case, scaler, used)
        case.equal(case.gradients(used), [[2.0]], "gradients of an optimizer that counts as stepped")
        case.equal(case.raw(scaler).__dict__, before, "attributes of the scaler")
        case.equal(before.get("_per_optimizer_states", {}), entries, "entries")
        case.equal(before.get("_scale"), scale, "_scale")
        case.equal(getattr(before.get("_scale"), "_version", 0), version, "version of _scale")
    unscale_grads(case, scaler, optimizer)
    case.equal(case.gradients(optimizer), [[0.5]], "gradients after a second call, which nothing forbids")


@behaviour(
    "S5.9",
    "unscale_() walks groups and parameters once, under no_grad; group['params'] may be any iterable, also a generator",
)
def parameters_are_walked_once(case: Case) -> None:
    parameters = [case.parameter([8.0]) for _ in range(6)]
    counting = Once(parameters[3:5])
    containers = (
        iter(parameters[:1]),
        tuple(parameters[1:2]),
        dict.fromkeys(parameters[2:3]),
        counting,
        (p for p in parameters[5:]),
    )
    scaler = case.ready_scaler(4.0)
    scaler.unscale_(case.optimizer(Bag(*containers)))
    case.equal([parameter.grad.item() for parameter in parameters], [2.0] * 6, "gradients")  # type: ignore[union-attr]
    case.equal(counting.walks, 1, "walks over the parameters")
    bag = Bag()
    groups = Once([{"params": [case.parameter([8.0])]}, {"params": [case.parameter([INF])]}])
    bag.param_groups = groups  # type: ignore[assignment]
    scaler.unscale_(bag)
    case.equal(groups.walks, 1, "walks over the groups")
    case.equal([group["params"][0].grad.item() for group in groups.items], [2.0, INF], "gradients of the groups")
    case.equal(torch.is_grad_enabled(), True, "gradients on afterwards")
    case.equal(counting.grad_modes, [False, False], "gradients on during the walk")


@behaviour("S5.10", "unscale_() raises AssertionError, with the name of the type, for a parameter that is no tensor")
def a_parameter_must_be_a_tensor(case: Case) -> None:
    for wrong, name in ((5, "int"), (None, "NoneType"), ("weight", "str"), ([case.tensor(1.0)], "list")):
        scaler, first = case.ready_scaler(4.0), case.parameter([8.0])
        optimizer = case.optimizer(Bag([first], [wrong]))
        case.raises(AssertionError, no_tensor(name), scaler.unscale_, optimizer)
        case.equal(first.grad, case.tensor([8.0]), "gradient of the parameter before it")


@behaviour(
    "S5.11",
    "unscale_() passes over parameters without a gradient and raises ValueError for a float16 gradient before any "
    "gradient has been written; the private _unscale_grads_ takes it where allow_fp16 is True",
)
def float16_is_refused_first(case: Case) -> None:
    scaler, optimizer = case.ready_scaler(4.0), case.sgd(case.parameter(None), [8.0], case.parameter(None))
    scaler.unscale_(optimizer)
    case.equal(case.gradients(optimizer), [None, [2.0], None], "gradients")
    _only_the_gradient_is_looked_at(case)
    halves = (
        case.tensor([8.0], torch.float16),
        sparse(case, [1, 1], [8.0, 8.0], torch.float16),
        case.tensor([], torch.float16),
    )
    for half in halves:
        wide = case.tensor([8.0], torch.float64)
        optimizer = case.sgd([8.0], wide.clone())
        optimizer.add_param_group({"params": [case.parameter(half)]})
        case.raises(ValueError, FLOAT16, case.ready_scaler(4.0).unscale_, optimizer)
        before = case.parameters(optimizer)[:2]
        case.equal([parameter.grad for parameter in before], [case.tensor([8.0]), wide], "gradients before it")
        case.same(case.parameters(optimizer)[2].grad, half, "gradient in float16")
    case.equal(halves[0], case.tensor([8.0], torch.float16), "gradient in float16")
    if case.private:
        optimizer = case.sgd([8.0], case.tensor([8.0, 3.0], torch.float16))
        found = unscale_grads(case, case.new_scaler(), optimizer, allow_fp16=True)
        case.equal(found, {home(case): case.tensor(0.0)})
        case.equal(case.gradients(optimizer), [[2.0], [2.0, 0.75]], "gradients with float16 allowed")


def _only_the_gradient_is_looked_at(case: Case) -> None:
    for bad in (8.0, INF):
        frozen = [case.parameter([8.0]), case.parameter([bad])]
        for parameter in frozen:
            parameter.requires_grad_(False)
        scaler, optimizer = case.ready_scaler(4.0), case.sgd([8.0], *frozen)
        scaler.step(optimizer)
        case.equal(case.gradients(optimizer), [[2.0], [2.0], [bad / 4.0]], "gradients, two of frozen parameters")
        after = 1.0 if bad == INF else -1.0
        case.equal(
            case.values(optimizer), [[after]] * 3, f"parameters, two of them frozen, one with the gradient {bad}"
        )
    # Assigning to data changes the dtype of a parameter and leaves that of its gradient.
    narrowed, widened = case.parameter([8.0]), case.parameter([8.0], torch.float16)
    narrowed.data, widened.data = narrowed.data.half(), widened.data.float()
    case.ready_scaler(4.0).unscale_(case.sgd(narrowed))
    case.equal(narrowed.grad, case.tensor([2.0]), "float32 gradient of a float16 parameter")
    case.raises(ValueError, FLOAT16, case.ready_scaler(4.0).unscale_, case.sgd(widened))
    case.equal(widened.grad, case.tensor([8.0], torch.float16), "float16 gradient of a float32 parameter")


@behaviour(
    "S5.12",
    "unscale_() multiplies the values of a sparse COO gradient in place, coalesced or not; one in float16, where "
    "allowed, is replaced by its coalesced form, so that an overflow of the sums is seen",
)
def sparse_gradients(case: Case) -> None:
    for dtype in scaler_dtypes(case):
        gradient = sparse(case, [2, 2], [8.0, 16.0], dtype)
        scaler, optimizer = case.ready_scaler(4.0), case.sgd(gradient)
        address = gradient._values().data_ptr()
        scaler.unscale_(optimizer)
        case.same(case.parameters(optimizer)[0].grad, gradient, "gradient")
        case.equal(gradient.is_coalesced(), False, "coalesced")
        case.equal(gradient._values(), case.tensor([2.0, 4.0], dtype), "values")
        case.equal(gradient._values().data_ptr(), address, "address of the values")
        scaler.step(optimizer)
        case.equal(case.values(optimizer), [[1.0, 1.0, -5.0]], "parameters")
    for values, stepped in (([3e38, 3e38], True), ([1.0, INF], False)):
        scaler, optimizer = case.ready_scaler(4.0), case.sgd(sparse(case, [1, 1], values), [4.0])
        scaler.step(optimizer)
        case.equal(case.values(optimizer)[1], [0.0 if stepped else 1.0], f"parameters with duplicates {values}")
    coalesced = sparse(case, [0, 1], [8.0, 16.0]).coalesce()
    case.ready_scaler(4.0).unscale_(case.sgd(coalesced))
    case.equal(coalesced.to_dense(), case.tensor([2.0, 4.0, 0.0]), "coalesced gradient")
    case.equal(coalesced.is_coalesced(), True, "coalesced")
    if case.private:
        _half_sparse_gradients(case)


def _half_sparse_gradients(case: Case) -> None:
    for values, expected, flag in (([8.0, 16.0], 6.0, 0.0), ([40000.0, 40000.0], INF, 1.0)):
        before = sparse(case, [2, 2], values, torch.float16)
        optimizer = case.sgd(before)
        found = unscale_grads(case, case.new_scaler(), optimizer, allow_fp16=True)
        after = case.parameters(optimizer)[0].grad
        case.true(after is not before, "a float16 gradient is replaced")
        assert after is not None
        case.equal(after.is_coalesced(), True, "coalesced")
        case.equal(after._values(), case.tensor([expected], torch.float16), f"values of {values}, summed and unscaled")
        case.equal(before._values(), case.tensor(values, torch.float16), "values of the replaced gradient")
        case.equal(found, {home(case): case.tensor(flag)})


@behaviour(
    "S5.13",
    "Gradients are unscaled in groups, by device and then dtype as first seen, with one call of the operator each; "
    "all groups of a device share one flag, which nothing clears",
)
def groups_share_a_flag(case: Case) -> None:
    dtypes = scaler_dtypes(case)
    for order in itertools.permutations(dtypes):
        for bad in range(len(order)):
            gradients = [[INF if place == bad else 8.0, 8.0] for place in range(len(order))]
            scaler = case.ready_scaler(4.0)
            optimizer = case.sgd(*(case.tensor(g, dtype) for g, dtype in zip(gradients, order, strict=True)), [8.0])
            scaler.step(optimizer)
            case.equal(case.values(optimizer), [[1.0, 1.0]] * len(order) + [[1.0]], f"parameters, inf in {order[bad]}")
            scaled = [[INF if place == bad else 2.0, 2.0] for place in range(len(order))]
            case.equal(case.gradients(optimizer), [*scaled, [2.0]], f"gradients, inf in {order[bad]}")
            scaler.update()
            case.equal(scaler.get_scale(), 2.0, "scale")
    if case.private:
        for first in (case.device, torch.device("meta")):
            _one_operator_call_per_group(case, first)


def _one_operator_call_per_group(case: Case, first: torch.device) -> None:
    second = torch.device("meta") if first.type != "meta" else case.device
    kinds = [
        (first, torch.float64),
        (second, torch.float32),
        (first, torch.float32),
        (first, torch.float64),
        (second, torch.float32),
    ]
    parameters = [torch.nn.Parameter(torch.ones(2, dtype=dtype, device=device)) for device, dtype in kinds]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = case.optimizer(Bag(parameters[:3], parameters[3:]))
    inv_scale, master = case.tensor(0.25), case.tensor(0.0)
    with Operations() as operations:
        found = case.new_scaler()._unscale_grads_(optimizer, inv_scale, master, False)
    calls = [args for args, _ in operations.arguments_of(UNSCALE)]
    gradients = [parameter.grad for parameter in parameters]
    groups = [[0, 3], [2], [1, 4]]  # first: float64, float32; second: float32
    case.equal(len(calls), len(groups), "calls of the operator")
    devices = [parameters[0].device, parameters[0].device, parameters[1].device]
    for (grads, flag, inv), group, device in zip(calls, groups, devices, strict=True):
        case.equal([id(grad) for grad in grads], [id(gradients[index]) for index in group], "gradients of the call")
        case.same(flag, found[device], "found_inf of the call")
        case.true(flag is not master and inv is not inv_scale, "each device has copies of found_inf and inv_scale")
        case.equal((flag.device, inv.device), (device, device), "devices of found_inf and inv_scale")
    case.same(calls[0][2], calls[1][2], "inv_scale of the second dtype")
    case.equal(list(found), [devices[0], devices[2]], "devices in the result")


@behaviour(
    "S5.14",
    "unscale_() makes one flag for each device with a gradient, even one of size 0; the private _unscale_grads_ "
    "returns them by torch.device, shaped like the given found_inf, which is not written",
)
def the_result_maps_devices_to_flags(case: Case) -> None:
    scaler, optimizer = case.ready_scaler(4.0), case.sgd(case.parameter(None))
    scaler.unscale_(optimizer)
    case.raises(AssertionError, NOTHING_TO_UPDATE_BY, scaler.update)
    empty = case.sgd(case.tensor([]), case.parameter(None))
    scaler.unscale_(empty)
    scaler.step(empty)
    scaler.update()
    case.equal(case.growth_tracker(scaler), 1, "growth tracker after an iteration with a gradient of size 0")
    if not case.private:
        return
    new = case.new_scaler()
    case.equal(unscale_grads(case, new, case.sgd(case.parameter(None))), {}, "result without gradients")
    case.equal(unscale_grads(case, new, case.sgd(case.tensor([]))), {home(case): case.tensor(0.0)}, "result at size 0")
    for data, flag in ((0.0, 1.0), ([0.0], [1.0]), ([[0.0]], [[1.0]])):
        master = case.tensor(data)
        found = new._unscale_grads_(case.sgd([INF], [8.0]), case.tensor(0.25), master, False)
        case.equal(found, {home(case): case.tensor(flag)}, "result with an inf")
        case.equal(type(found), dict, "type of the result")
        case.equal(master, case.tensor(data), "the given found_inf")
        case.equal(master._version, 0, "version of the given found_inf")
