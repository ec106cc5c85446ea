"""Section 9: state_dict and load_state_dict."""

from __future__ import annotations

import collections
import io
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools_texts import EMPTY_STATE, UNSCALED_TWICE

KEYS = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
OLD = {"scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 0}
NEW = {"scale": 8.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 10, "_growth_tracker": 5}


def _through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@behaviour(
    "S9.1",
    "state_dict() returns {} if disabled, else a plain dict of scale, growth_factor, backoff_factor, "
    "growth_interval and _growth_tracker, from self.get_scale() and self._get_growth_tracker(), that loads with "
    "weights_only=True",
)
def state_dict_has_five_numbers(case: Case) -> None:
    state = case.new_scaler(enabled=False).state_dict()
    case.same(type(state), dict, "type of a disabled scaler's state")
    case.equal(state, {}, "state of a disabled scaler")
    scaler = case.new_scaler(0.1)
    expected = {**OLD, "scale": 0.1}
    case.same(type(scaler.state_dict()), dict, "type of the state")
    case.equal(scaler.state_dict(), expected, "state before scale()")
    case.equal(_through_a_file(scaler.state_dict()), expected, "state before scale(), saved and loaded")
    scaler.scale(case.tensor(1.0))
    expected = {**OLD, "scale": 0.10000000149011612}
    case.equal(scaler.state_dict(), expected, "state after scale()")
    case.equal(_through_a_file(scaler.state_dict()), expected, "state after scale(), saved and loaded")
    case.true(scaler.state_dict() is not scaler.state_dict(), "each call makes a new dict")
    if case.private:
        scaler._get_growth_tracker = lambda: 77
        case.equal(
            scaler.state_dict(), {**expected, "_growth_tracker": 77}, "state with _get_growth_tracker overridden"
        )
    case.equal(case.new_scaler(4).state_dict(), {**OLD, "scale": 4}, "state before scale(), scale given as an int")
    override = type("Override", (case.scaler_class,), {"get_scale": lambda self: 3.0})
    case.equal(case.new_scaler(4.0, of=override).state_dict(), {**OLD, "scale": 3.0}, "state with get_scale overridden")


@behaviour(
    "S9.2",
    "load_state_dict() raises RuntimeError for an empty dict and TypeError for None or an int; a disabled scaler "
    "takes anything and ignores it",
)
def an_empty_state_is_refused(case: Case) -> None:
    scaler, disabled = case.ready_scaler(4.0), case.new_scaler(enabled=False)
    empty: Any
    for empty in ({}, collections.OrderedDict()):
        case.raises(RuntimeError, EMPTY_STATE, scaler.load_state_dict, empty)
    for number in (None, 5):
        case.raises(TypeError, None, scaler.load_state_dict, number)
    case.equal(scaler.state_dict(), OLD, "state afterwards")
    for state in ({}, dict(NEW), {"scale": "x"}):
        case.equal(disabled.load_state_dict(state), None, "result of a disabled scaler")
    case.equal(disabled.state_dict(), {}, "state of a disabled scaler")
    for empty in ([], ()):
        case.raises(RuntimeError, EMPTY_STATE, scaler.load_state_dict, empty)
    for anything in (None, 5, "x"):
        case.equal(disabled.load_state_dict(anything), None, f"result of a disabled scaler for {anything!r}")


@behaviour(
    "S9.3",
    "load_state_dict() lets the five values take effect one by one in their order: a missing one raises KeyError, a "
    "bad one its own error, after the earlier ones have taken effect",
)
def a_state_is_loaded_value_by_value(case: Case) -> None:
    for missing in KEYS:
        state = {key: value for key, value in NEW.items() if key != missing}
        case.raises(KeyError, repr(missing), case.ready_scaler(4.0).load_state_dict, state)
    scaler = case.ready_scaler(4.0)
    case.raises(TypeError, None, scaler.load_state_dict, {**NEW, "scale": "x"})
    case.equal(scaler.state_dict(), OLD, "state after a bad scale")
    if case.private:
        case.equal(scaler._init_scale, "x", "_init_scale after a bad scale")
    scaler = case.new_scaler(4.0)
    scaler.load_state_dict({**NEW, "scale": "x", "_growth_tracker": "y"})
    case.equal(scaler.state_dict(), {**NEW, "scale": "x", "_growth_tracker": "y"}, "bad values before scale()")
    for ready in (True, False):
        for number, missing in enumerate(KEYS):
            scaler = case.ready_scaler(4.0) if ready else case.new_scaler(4.0)
            state = {key: value for key, value in NEW.items() if key != missing}
            case.raises(KeyError, repr(missing), scaler.load_state_dict, state)
            expected = {key: NEW[key] if place < number else OLD[key] for place, key in enumerate(KEYS)}
            case.equal(scaler.state_dict(), expected, f"state after {missing} was missing")
    scaler = case.ready_scaler(4.0)
    case.raises(TypeError, None, scaler.load_state_dict, {**NEW, "_growth_tracker": "x"})
    case.equal(scaler.state_dict(), {**NEW, "_growth_tracker": 0}, "state after a bad tracker")
    if case.private:
        case.equal(scaler._init_scale, 8.0, "_init_scale after a bad tracker")
        case.equal(scaler._init_growth_tracker, "x", "_init_growth_tracker after a bad tracker")


@behaviour(
    "S9.4",
    "load_state_dict() fills the tensors in place, leaves the optimizers' entries alone, ignores other keys and "
    "validates nothing: what does not fit into a tensor raises RuntimeError, a tracker of 5.7 becomes 5",
)
def a_state_is_loaded_in_place_and_unchecked(case: Case) -> None:
    scaler, optimizer = case.ready_scaler(4.0), case.sgd([4.0])
    scaler.unscale_(optimizer)
    given = {**NEW, "other": "ignored"}
    scaler.load_state_dict(given)
    case.equal(scaler.state_dict(), NEW, "state")
    case.equal(given, {**NEW, "other": "ignored"}, "the dict that was given")
    case.raises(RuntimeError, UNSCALED_TWICE, scaler.unscale_, optimizer)
    scaler.step(optimizer)
    case.equal(case.values(optimizer), [[0.0]], "parameters")
    scaler.update()
    case.equal(scaler.state_dict(), {**NEW, "_growth_tracker": 6}, "state after an update")
    if case.private:
        _tensors_are_filled_in_place(case, scaler)
    as_given = {**NEW, "growth_factor": 3, "backoff_factor": 0, "growth_interval": 10.0}
    scaler.load_state_dict(dict(as_given))
    case.equal(scaler.state_dict(), as_given, "state of an int for a float and a float for an int")
    scaler.load_state_dict({**NEW, "scale": torch.tensor(3.0)})
    case.equal(scaler.state_dict(), {**NEW, "scale": 3.0}, "state with the scale from a tensor")
    text = "fill_ only supports 0-dimension value tensor but got tensor with 1 dimensions."
    case.raises(RuntimeError, text, scaler.load_state_dict, {**NEW, "scale": torch.tensor([5.0])})
    unchecked = {
        "scale": -1.0,
        "growth_factor": 0.1,
        "backoff_factor": 7.0,
        "growth_interval": 0,
        "_growth_tracker": -3,
    }
    scaler.load_state_dict(unchecked)
    case.equal(scaler.state_dict(), unchecked, "state of unchecked values")
    scaler.load_state_dict({**NEW, "_growth_tracker": 5.7})
    case.equal(scaler.state_dict(), NEW, "state with a tracker of 5.7")
    if case.private:
        case.equal(scaler._init_growth_tracker, 5.7, "_init_growth_tracker")
    text = "value cannot be converted to type int without overflow"
    case.raises(RuntimeError, text, scaler.load_state_dict, {**NEW, "_growth_tracker": 2**40})


def _tensors_are_filled_in_place(case: Case, scaler: Any) -> None:
    tensors = {name: getattr(scaler, name) for name in ("_scale", "_growth_tracker")}
    before = {name: (tensor._version, tensor.data_ptr()) for name, tensor in tensors.items()}
    scaler.load_state_dict(dict(NEW))
    for name, tensor in tensors.items():
        version, address = before[name]
        case.same(getattr(scaler, name), tensor, name)
        case.equal((tensor._version, tensor.data_ptr()), (version + 1, address), f"version and address of {name}")
    case.equal(scaler._init_scale, 8.0, "_init_scale")
    case.equal(scaler._init_growth_tracker, 5, "_init_growth_tracker")
