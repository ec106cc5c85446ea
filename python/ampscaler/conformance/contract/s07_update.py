"""Section 7, second part: update() by what the optimizers' gradients showed, and what it leaves behind."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, HostReads, Operations, iterate, waiting_is_an_error
from ampscaler.conformance.tools_texts import (
    BAD_NEW_SCALE,
    MODIFIED,
    NO_ROOM_FOR_ONE,
    NOTHING_TO_UPDATE_BY,
    STEPPED_TWICE,
    TOO_LARGE,
)


def _flag(case: Case, value: Any) -> dict[str, Any]:
    """An entry with one flag, under a key that is no device."""
    return {"found_inf_per_device": {"any key": case.tensor(value)}}


@behaviour(
    "S7.10",
    "update() backs off if any optimizer recorded an overflow, else counts towards growth, with the factors and the "
    "interval as they are now, and raises AssertionError if nothing was recorded; the flags, moved to the scale's "
    "device without waiting, are added into the first of them",
)
def all_records_decide(case: Case) -> None:
    scaler = case.ready_scaler(4.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=2)
    case.raises(AssertionError, NOTHING_TO_UPDATE_BY, scaler.update)
    for gradients, scale, tracker in (
        ((4.0, 4.0, 4.0), 4.0, 1),
        ((4.0, INF, 4.0), 1.0, 0),
        ((INF, INF, INF), 0.25, 0),
        ((4.0, 4.0, 4.0), 0.25, 1),
        ((4.0, 4.0, 4.0), 0.75, 0),
    ):
        for gradient in gradients:
            scaler.step(case.sgd([gradient]))
        scaler.update()
        case.equal(scaler.get_scale(), scale, f"scale after the gradients {gradients}")
        case.equal(case.growth_tracker(scaler), tracker, f"growth tracker after the gradients {gradients}")
    _one_of_many_is_enough(case)
    scaler.set_growth_factor(8.0)
    scaler.set_backoff_factor(0.125)
    scaler.set_growth_interval(1)
    scaler.step(case.sgd([4.0]))
    scaler.update()
    case.equal(scaler.get_scale(), 6.0, "scale after growth by the new factor at the new interval")
    scaler.step(case.sgd([INF]))
    scaler.update()
    case.equal(scaler.get_scale(), 0.75, "scale after backoff by the new factor")
    if case.private:
        _flags_are_added_into_the_first(case)
        _flags_of_other_devices_are_moved(case)


def _one_of_many_is_enough(case: Case) -> None:
    for count, places in ((6, range(6)), (40, (39,))):
        for bad in places:
            scaler = case.ready_scaler(4.0)
            optimizers = [case.sgd([INF if place == bad else 4.0]) for place in range(count)]
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
            what = f"after an overflow of optimizer {bad + 1} of {count}"
            case.equal((scaler.get_scale(), case.growth_tracker(scaler)), (2.0, 0), f"scale and tracker {what}")
            stepped = [[[1.0 if place == bad else 0.0]] for place in range(count)]
            case.equal([case.values(optimizer) for optimizer in optimizers], stepped, f"parameters {what}")


def _flags_are_added_into_the_first(case: Case) -> None:
    scaler = case.ready_scaler(4.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
    flags: list[torch.Tensor] = []
    for gradient in (4.0, INF, 4.0, INF):
        optimizer = case.sgd([gradient])
        scaler.unscale_(optimizer)
        flags.extend(scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values())
    flags.append(case.tensor(0.5))
    scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]["second key"] = flags[-1]
    with Operations() as operations:
        scaler.update()
    case.equal(flags, [case.tensor(value) for value in (2.5, 1.0, 0.0, 1.0, 0.5)], "flags after update()")
    calls = operations.arguments_of(torch.ops.aten._amp_update_scale_.default)
    case.equal(len(calls), 1, "calls of _amp_update_scale_")
    (scale, tracker, combined, *numbers), kwargs = calls[0]
    case.same(scale, scaler._scale, "first argument")
    case.same(tracker, scaler._growth_tracker, "second argument")
    case.same(combined, flags[0], "third argument")
    case.equal((numbers, kwargs), ([3.0, 0.25, 7], {}), "other arguments")


def _flags_of_other_devices_are_moved(case: Case) -> None:
    scaler = case.new_scaler(4.0)
    scaler.scale(torch.ones((), device="meta"))
    first, second = _flag(case, 0.0), _flag(case, 1.0)
    scaler._per_optimizer_states.update({1: first, 2: second})
    with Operations() as operations:
        scaler.update()
    moves = operations.arguments_of(torch.ops.aten._to_copy.default)
    wanted = [(kwargs["device"].type, kwargs.get("non_blocking")) for _, kwargs in moves]
    case.equal(wanted, [("meta", True)] * 2, "moves to the scale's device")
    case.equal(first, _flag(case, 0.0), "first entry, which lives elsewhere and is not written")


@behaviour(
    "S7.11",
    "update() counts whatever was recorded, also without a step() and under any key; optimizers without gradients "
    "contribute nothing; a flag of shape (1,) may be the first, but raises RuntimeError after a 0-dim one",
)
def whatever_is_recorded_counts(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    scaler.unscale_(case.sgd([4.0]))
    scaler.update()
    case.equal(
        (scaler.get_scale(), case.growth_tracker(scaler)), (4.0, 1), "scale and tracker after a clean unscale_()"
    )
    scaler.unscale_(case.sgd([INF]))
    scaler.update()
    case.equal((scaler.get_scale(), case.growth_tracker(scaler)), (2.0, 0), "scale and tracker after an infinite one")
    scaler.unscale_(case.sgd(None))
    case.raises(AssertionError, NOTHING_TO_UPDATE_BY, scaler.update)
    scaler.step(case.sgd([4.0]))
    scaler.update()
    case.equal((scaler.get_scale(), case.growth_tracker(scaler)), (2.0, 1), "scale and tracker with an empty optimizer")
    if case.private:
        _entries_of_any_kind_count(case)


def _entries_of_any_kind_count(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    scaler._per_optimizer_states["any key"] = _flag(case, 0.5)
    scaler.update()
    case.equal(scaler.get_scale(), 2.0, "scale after an entry under a text")
    for first, second in (([1.0], 0.0), ([0.0], 1.0), ([1.0], [1.0])):
        scaler._per_optimizer_states.update({"a": _flag(case, first), "b": _flag(case, second)})
        scaler.update()
    case.equal(scaler.get_scale(), 0.25, "scale after three first entries of shape (1,)")
    scaler._per_optimizer_states.update({"a": _flag(case, 0.0), "b": _flag(case, [1.0])})
    case.raises(RuntimeError, NO_ROOM_FOR_ONE, scaler.update)
    case.equal(scaler.get_scale(), 0.25, "scale after the error")


@behaviour(
    "S7.12",
    "update() writes scale and growth tracker in place, whatever it is given: objects and addresses stay",
)
def update_writes_in_place(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    leaf = case.tensor(1.0).requires_grad_()
    kept: list[Any] = []  # the first address stays taken as long as its tensor lives
    for given, expected in ((None, 2.0), (8.0, 8.0), (case.tensor(16.0), 16.0)):
        loss = scaler.scale(leaf)
        kept.append(loss.grad_fn._saved_other)  # the scale itself
        scaler.step(case.sgd([INF]))
        scaler.update(given)
        case.equal(
            kept[0], case.tensor(expected), f"the first scale, seen through an old product, after update({given})"
        )
        case.raises(RuntimeError, MODIFIED, loss.backward)
    case.equal([scale.data_ptr() for scale in kept], [kept[0].data_ptr()] * 3, "addresses of the scale")
    if case.private:
        _objects_and_versions(case)


def _objects_and_versions(case: Case) -> None:
    scaler = case.ready_scaler(4.0, growth_interval=2)
    scale, tracker = scaler._scale, scaler._growth_tracker
    addresses = scale.data_ptr(), tracker.data_ptr()
    for gradient, given in ((4.0, None), (4.0, None), (INF, None), (4.0, 8.0), (4.0, case.tensor(16.0))):
        versions = scale._version, tracker._version
        scaler.step(case.sgd([gradient]))
        scaler.update(given)
        case.same(scaler._scale, scale, "_scale")
        case.same(scaler._growth_tracker, tracker, "_growth_tracker")
        case.equal((scale.data_ptr(), tracker.data_ptr()), addresses, "addresses")
        case.equal((scale._version, tracker._version), (versions[0] + 1, versions[1]), "versions")


@behaviour("S7.13", "update() reads nothing back to the host, so that it works on tensors without data")
def update_reads_nothing(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    for gradients, given in (((4.0,), None), ((4.0, INF), None), ((INF,), 8.0), ((4.0,), case.tensor(16.0))):
        for gradient in gradients:
            scaler.step(case.sgd([gradient]))
        with HostReads() as reads:
            scaler.update(given)
        case.equal(reads.count, 0, f"host reads of update({given})")
    with HostReads() as reads:
        scaler.get_scale()
    case.equal(reads.count, 1, "host reads of get_scale(), which shows that they are seen")
    _works_without_values(case)
    if case.device.type == "cuda":
        _does_not_wait_on_cuda(case)


def _works_without_values(case: Case) -> None:
    """Tensors on the device meta have no values, so that every read of one raises."""
    scaler = case.new_scaler(4.0)
    scaler.scale(torch.ones((), device="meta"))
    for number in (1, 2):
        for _ in range(number):
            parameter = torch.nn.Parameter(torch.ones(2, device="meta"))
            parameter.grad = torch.ones(2, device="meta")
            scaler.unscale_(case.sgd(parameter))
        scaler.update()
    scaler.update(8.0)
    case.raises(RuntimeError, "Tensor.item() cannot be called on meta tensors", scaler.get_scale)


def _does_not_wait_on_cuda(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    scaler.step(case.sgd([4.0]))
    with waiting_is_an_error(case.device):
        scaler.update()
        scaler.update(8.0)


@behaviour(
    "S7.14",
    "A successful update() begins anew with all optimizers, by a new defaultdict for the private "
    "_per_optimizer_states; one that raises leaves every record alone",
)
def update_drops_the_entries(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    stepped, unscaled = case.sgd([INF]), case.sgd([4.0])
    scaler.step(stepped)
    scaler.unscale_(unscaled)
    for bad, kind, text in (
        (1e39, RuntimeError, TOO_LARGE),
        (8, AttributeError, "'int' object has no attribute 'device'"),
        (case.tensor([1.0, 2.0]), AssertionError, BAD_NEW_SCALE),
        (case.tensor([8.0]), RuntimeError, NO_ROOM_FOR_ONE),
    ):
        case.raises(kind, text, scaler.update, bad)
        case.raises(RuntimeError, STEPPED_TWICE, scaler.step, stepped)
    scaler.step(unscaled)
    case.equal(case.gradients(unscaled), [[1.0]], "gradient, divided once")
    scaler.update()
    case.equal(scaler.get_scale(), 2.0, "scale: the overflow was still on record")
    for optimizer in (stepped, unscaled):
        scaler.step(optimizer)
    case.equal(case.gradients(unscaled), [[0.5]], "gradient, divided again in the new iteration")
    scaler.update(8.0)
    scaler.unscale_(unscaled)
    case.equal(case.gradients(unscaled), [[0.0625]], "gradient, divided again after update(8.0)")
    if case.private:
        _the_dict_is_replaced(case)


def _the_dict_is_replaced(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    for given in (None, 8.0, case.tensor(8.0)):
        optimizer = case.sgd([4.0])
        scaler.step(optimizer)
        before = scaler._per_optimizer_states
        case.raises(RuntimeError, TOO_LARGE, scaler.update, 1e39)
        case.same(scaler._per_optimizer_states, before, "_per_optimizer_states after an error")
        state = before[id(optimizer)]
        scaler.update(given)
        after = scaler._per_optimizer_states
        case.true(after is not before, "_per_optimizer_states is another dict")
        case.equal((type(after), len(after)), (defaultdict, 0), "the new dict")
        fresh = after.default_factory()
        case.equal((fresh["stage"].name, fresh["found_inf_per_device"]), ("READY", {}), "a fresh entry of the new dict")
        case.equal(len(before), 1, "number of entries of the old dict")
        case.same(before[id(optimizer)], state, "the entry of the old dict")
        case.equal(state["stage"].name, "STEPPED", "its stage")


@behaviour(
    "S7.15",
    "update() takes integer factors and raises TypeError for a growth interval that is a float or bool, without a "
    "trace",
)
def integer_factors_and_odd_intervals(case: Case) -> None:
    scaler = case.ready_scaler(4.0, growth_factor=3, growth_interval=1)
    scaler.step(case.sgd([4.0]))
    scaler.update()
    case.equal(scaler.get_scale(), 12.0, "scale after growth by 3")
    scaler.set_growth_factor(5)
    scaler.step(case.sgd([4.0]))
    scaler.update()
    case.equal(scaler.get_scale(), 60.0, "scale after growth by 5")
    optimizer = case.sgd([4.0])
    scaler.step(optimizer)
    for interval in (1.0, 2.5, True):
        scaler.set_growth_interval(interval)
        case.raises(TypeError, None, scaler.update)
        case.equal(
            (scaler.get_scale(), case.growth_tracker(scaler)), (60.0, 0), "scale and growth tracker after the error"
        )
        case.raises(RuntimeError, STEPPED_TWICE, scaler.step, optimizer)
    scaler.set_growth_interval(1)
    scaler.update()
    case.equal(scaler.get_scale(), 300.0, "scale once the interval is an int")
    scaler.set_backoff_factor(-2)
    iterate(case, scaler, INF)
    case.equal(scaler.get_scale(), -600.0, "scale after backoff by -2")
