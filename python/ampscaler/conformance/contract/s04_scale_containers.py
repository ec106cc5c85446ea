"""Section 4: scale() of lists, tuples and other iterables of tensors."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools_texts import NO_TENSORS, never_scaled


class Items(list[Any]):
    """A list that keeps what it was built from."""

    def __init__(self, items: Any) -> None:
        self.given = items
        super().__init__(items)


class Fixed(tuple[Any, ...]):
    """A tuple of another type."""


class Pair(NamedTuple):
    """Two fields: its constructor takes no iterator."""

    first: Any
    second: Any


class Single(NamedTuple):
    """One field: an iterator fits in it."""

    only: Any


def _is_ready(case: Case, scaler: Any) -> bool:
    try:
        scaler.unscale_(case.sgd([4.0]))
    except AssertionError as error:
        case.equal(str(error), never_scaled("unscale_"), "error")
        return False
    return True


@behaviour(
    "S4.12",
    "scale() rebuilds lists and tuples, nested freely, as type(value)(iterator): subclasses and torch.return_types "
    "keep their type, a namedtuple of two fields raises TypeError, one of one field gets an iterator",
)
def lists_and_tuples_are_rebuilt(case: Case) -> None:
    scaler = case.new_scaler(4.0)
    one, two, four, eight = (case.tensor(value) for value in (1.0, 2.0, 4.0, 8.0))
    case.equal(scaler.scale([one, (two, [one, ()]), two]), [four, (eight, [four, ()]), eight], "nested")
    case.equal(scaler.scale((one, [two])), (four, [eight]), "nested")
    outputs = Items([one, two])
    result = scaler.scale(outputs)
    case.true(result is not outputs and isinstance(result.given, Iterator), "a list subclass is built from an iterator")
    case.equal(result, Items([four, eight]), "list subclass")
    case.equal(scaler.scale(Fixed((one, Items([two])))), Fixed((four, Items([eight]))), "tuple subclass")
    result = scaler.scale(case.tensor([[1.0, 3.0]]).max(dim=1))
    case.equal(type(result), torch.return_types.max, "type of a scaled torch.return_types.max")
    case.equal(tuple(result), (case.tensor([12.0]), case.tensor([4.0])), "values and indices")
    case.raises(TypeError, re.compile("missing 1 required positional argument: 'second'"), scaler.scale, Pair(one, two))
    result = scaler.scale(Single(one))
    case.equal(type(result), Single, "type of a scaled namedtuple with one field")
    case.equal(type(result.only), map, "type of its field")
    case.equal(list(result.only), [four], "what the field yields")
    _containers_may_be_long(case)


def _containers_may_be_long(case: Case) -> None:
    scaler = case.new_scaler(4.0)
    for kind in (list, tuple):
        outputs = kind(case.tensor(float(place)) for place in range(100))
        expected = kind(case.tensor(4.0 * place) for place in range(100))
        case.equal(scaler.scale(outputs), expected, f"a {kind.__name__} of 100 outputs")
    nested: Any = case.tensor(1.0)
    scaled: Any = case.tensor(4.0)
    for _ in range(40):
        nested, scaled = [nested], [scaled]
    case.equal(scaler.scale(nested), scaled, "an output in 40 lists")


@behaviour(
    "S4.13",
    "scale() of a container multiplies by one private copy of the scale per device, so that a later update() does "
    "not disturb the backward",
)
def containers_use_a_private_copy(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    weight = case.parameter(None)
    kept, other = scaler.scale([weight.sum(), (weight.sum(),)])
    addresses = [loss.grad_fn._saved_other.data_ptr() for loss in (kept, other[0])]
    own = scaler.scale(weight.sum()).grad_fn._saved_other.data_ptr()  # of a tensor: the scale itself
    case.true(addresses[0] != own, "the copy is not the scale itself")
    if case.private:
        case.equal(own, scaler._scale.data_ptr(), "address of the scale")
    scaler.update(8.0)
    kept.backward()
    case.equal(weight.grad, case.tensor([4.0, 4.0]), "gradient of a backward after the update")
    case.equal(scaler.scale([case.tensor(1.0)]), [case.tensor(8.0)], "the next call")
    elsewhere = torch.ones((), device="meta")
    devices = [output.device for output in scaler.scale([case.tensor(1.0), elsewhere, case.tensor(1.0)])]
    case.equal([device.type for device in devices], [case.device.type, "meta", case.device.type], "devices")
    lazy = scaler.scale(iter([case.tensor(1.0), case.tensor(1.0)]))
    case.equal(next(lazy), case.tensor(8.0), "first element")
    scaler.update(16.0)
    case.equal(next(lazy), case.tensor(8.0), "second element of the same call, taken after update(16.0)")
    case.equal(addresses[1], addresses[0], "address of the copy that the second tensor was multiplied by")


@behaviour(
    "S4.14",
    "scale() of an empty list or tuple returns an empty one and initialises nothing; a container that fails keeps "
    "what it initialised before",
)
def empty_and_failing_containers(case: Case) -> None:
    scaler = case.new_scaler(4.0)
    for empty in ([], (), [()], [[], ((),)], Items([])):
        case.equal(scaler.scale(empty), empty, "scaled")
        case.raises(AssertionError, never_scaled("unscale_"), scaler.unscale_, case.sgd([4.0]))
    case.raises(ValueError, NO_TENSORS, scaler.scale, [5, case.tensor(1.0)])
    case.true(not _is_ready(case, scaler), "an error before the first tensor initialises nothing")
    case.raises(ValueError, NO_TENSORS, scaler.scale, [case.tensor(1.0), 5])
    case.true(_is_ready(case, scaler), "an error after the first tensor leaves the scaler initialised")


@behaviour(
    "S4.15",
    "scale() of any other iterable returns a lazy map object, for a dict over its keys, for a str over maps without "
    "an end; initialisation and errors come when it is consumed",
)
def other_iterables_are_lazy(case: Case) -> None:
    taken: list[float] = []
    scaler = case.new_scaler(4.0)
    lazy = scaler.scale(taken.append(value) or case.tensor(value) for value in (1.0, 2.0))  # type: ignore[func-returns-value]
    case.equal(type(lazy), map, "type of a scaled generator")
    case.equal(taken, [], "elements taken before consumption")
    case.true(not _is_ready(case, scaler), "nothing is initialised before consumption")
    case.equal(next(lazy), case.tensor(4.0), "first element")
    case.equal(taken, [1.0], "elements taken so far")
    case.true(_is_ready(case, scaler), "consumption initialises")
    case.equal(list(lazy), [case.tensor(8.0)], "the rest")
    one = case.tensor(1.0)
    for outputs in ({one}, {one: case.tensor(5.0)}, {one: 0}.keys(), iter([one])):
        lazy = scaler.scale(outputs)
        case.equal(type(lazy), map, f"type of a scaled {type(outputs).__name__}")
        case.equal(list(lazy), [case.tensor(4.0)], f"elements of a scaled {type(outputs).__name__}")
    nested = scaler.scale([iter([one])])
    case.equal(type(nested), list, "type of a scaled list of iterators")
    case.equal(list(nested[0]), [case.tensor(4.0)], "elements of an iterator in a list")
    for wrong in ({1, 2}, {1: one}, b"ab", range(2), iter([None])):
        lazy = scaler.scale(wrong)
        case.equal(type(lazy), map, f"type of a scaled {type(wrong).__name__}")
        case.raises(ValueError, NO_TENSORS, list, lazy)
    case.raises(ValueError, NO_TENSORS, scaler.scale, torch.Size([2, 3]))  # a tuple: built at once
    _strings_never_end(case, scaler)
    if importlib.util.find_spec("numpy"):
        _arrays_are_iterables(case, scaler)


def _strings_never_end(case: Case, scaler: Any) -> None:
    lazy = scaler.scale("ab")
    for _ in range(3000):  # more than Python's recursion limit
        case.equal(type(lazy), map, "type of a scaled str, and of the elements of it")
        lazy = next(lazy)
    case.equal(len(list(scaler.scale("ab"))), 2, "elements of a scaled str")

    def consume(values: Any) -> list[Any]:
        return [consume(value) for value in values]

    case.raises(RecursionError, None, consume, scaler.scale("a"))


def _arrays_are_iterables(case: Case, scaler: Any) -> None:
    import numpy as np

    numbers = scaler.scale(np.array([1.0, 2.0]))
    case.equal(type(numbers), map, "type of a scaled ndarray")
    case.raises(ValueError, NO_TENSORS, list, numbers)
    array = np.empty(1, dtype=object)
    array[0] = case.tensor(1.0)
    case.equal(list(scaler.scale(array)), [case.tensor(4.0)], "elements of a scaled ndarray of tensors")
