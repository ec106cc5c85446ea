"""Section 10: pickle, copy and deepcopy of the scaler itself."""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools_texts import FLOAT16, NOTHING_TO_UPDATE_BY, PICKLED_MIDWAY

#: The state of _trained_scaler.
TRAINED = {
    "scale": 0.10000000149011612,
    "growth_factor": 3.0,
    "backoff_factor": 0.25,
    "growth_interval": 7,
    "_growth_tracker": 1,
}


def _saved(scaler: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(scaler, file)
    file.seek(0)
    return file


def _pickled(scaler: Any, protocol: int) -> Any:
    return pickle.loads(pickle.dumps(scaler, protocol))


def _cloners() -> dict[str, Callable[[Any], Any]]:
    """All the ways to make another scaler of one."""
    cloners: dict[str, Callable[[Any], Any]] = {"copy": copy.copy, "deepcopy": copy.deepcopy}
    cloners["torch.save"] = lambda scaler: torch.load(_saved(scaler), weights_only=False)
    for protocol in range(6):
        cloners[f"pickle, protocol {protocol}"] = functools.partial(_pickled, protocol=protocol)
    return cloners


@behaviour(
    "S10.1",
    "A scaler pickles as its attributes, with the tensors turned into start values, a disabled one as they are; an "
    "enabled one with any optimizer's entry raises AssertionError",
)
def a_busy_scaler_is_not_picklable(case: Case) -> None:
    scaler, optimizer = case.ready_scaler(0.1, growth_interval=7), case.sgd([4.0])
    scaler.unscale_(optimizer)
    for cloner in _cloners().values():
        case.raises(AssertionError, PICKLED_MIDWAY, cloner, case.raw(scaler))
    scaler.step(optimizer)
    case.raises(AssertionError, PICKLED_MIDWAY, pickle.dumps, case.raw(scaler))
    scaler.update()
    clone = case.recorded(pickle.loads(pickle.dumps(case.raw(scaler))))
    case.equal(clone.get_scale(), 0.10000000149011612, "scale of a clone made after update()")
    disabled = case.raw(case.new_scaler(enabled=False))
    clone = case.recorded(pickle.loads(pickle.dumps(disabled)))
    case.equal([clone.is_enabled(), clone.get_scale()], [False, 1.0], "clone of a disabled scaler")
    if case.private:
        before = dict(case.raw(scaler).__dict__)
        state = case.raw(scaler).__getstate__()
        start = {"_init_scale": 0.10000000149011612, "_init_growth_tracker": 1, "_scale": None, "_growth_tracker": None}
        case.equal(state, {**before, **start}, "__getstate__()")
        case.same(state["_per_optimizer_states"], scaler._per_optimizer_states, "entries in __getstate__()")
        case.equal(case.raw(scaler).__dict__, before, "__dict__ afterwards")
        case.equal(case.raw(case.new_scaler(0.1)).__getstate__()["_init_scale"], 0.1, "_init_scale before scale()")
        disabled.note = "kept"
        expected = {"_device": case.device.type, "_enabled": False, "note": "kept"}
        case.equal(disabled.__getstate__(), expected, "__getstate__() of a disabled scaler")
        case.true(disabled.__getstate__() is not disabled.__dict__, "__getstate__() gives a copy of __dict__")


@behaviour(
    "S10.2",
    "pickle, copy, deepcopy and torch.save give a clone with the scaler's numbers and the user's attributes that "
    "initialises anew at its next scale(); copy.copy shares the entries until an update()",
)
def a_clone_goes_on_where_the_scaler_is(case: Case) -> None:
    for name, cloner in _cloners().items():
        scaler = _trained_scaler(case)  # a new one each time: a shallow copy leaves its entries in it
        clone = case.recorded(cloner(case.raw(scaler)))
        case.same(type(case.raw(clone)), case.scaler_class, f"{name}: type")
        case.equal(clone.state_dict(), TRAINED, f"{name}: state")
        if case.private:
            case.equal([clone._scale, clone._growth_tracker], [None, None], f"{name}: tensors")
        case.equal(clone.note, "kept", f"{name}: attribute of the user")
        case.equal(clone.scale(case.tensor(1.0)), case.tensor(0.10000000149011612), f"{name}: scaled loss")
        clone.step(case.sgd([4.0]))
        clone.update()
        case.equal(case.growth_tracker(clone), 2, f"{name}: tracker of the clone")
        case.equal(case.growth_tracker(scaler), 1, f"{name}: tracker of the scaler")
    if case.private:
        scaler = _trained_scaler(case)
        _a_copy_shares_the_entries(case, scaler)
        clone = case.recorded(copy.copy(case.raw(scaler)))
        clone.__setstate__({"_growth_factor": 9.0, "other": 5})
        case.equal([clone.get_growth_factor(), clone.other, clone.note], [9.0, 5, "kept"], "after __setstate__()")


def _trained_scaler(case: Case) -> Any:
    scaler = case.ready_scaler(0.1, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
    scaler.step(case.sgd([4.0]))
    scaler.update()
    scaler.note = "kept"
    return scaler


def _a_copy_shares_the_entries(case: Case, scaler: Any) -> None:
    """With the scaler that it was copied from, until one of the two is updated."""
    clone, optimizer = case.recorded(copy.copy(case.raw(scaler))), case.sgd([4.0])
    shared = scaler._per_optimizer_states
    case.same(clone._per_optimizer_states, shared, "entries of a copy")
    deep = case.recorded(copy.deepcopy(case.raw(scaler)))
    case.true(deep._per_optimizer_states is not shared, "a deep copy has entries of its own")
    clone.scale(case.tensor(1.0))
    clone.step(optimizer)
    case.equal(case.stage(scaler, optimizer), "STEPPED", "stage in the scaler after a step of its copy")
    clone.update()
    case.true(clone._per_optimizer_states is not shared, "an update gives the copy entries of its own")
    case.same(scaler._per_optimizer_states, shared, "entries of the scaler")
    scaler.update()


@behaviour(
    "S10.3",
    "A failed unscale_(), or a mere read of _per_optimizer_states[key], forbids pickling until an update() succeeds",
)
def a_trace_of_an_entry_forbids_pickling(case: Case) -> None:
    scaler, half = case.ready_scaler(4.0), case.sgd(case.parameter([4.0], torch.float16))
    pickle.dumps(case.raw(scaler))
    case.raises(ValueError, FLOAT16, scaler.unscale_, half)
    _not_picklable_until_an_update(case, scaler)
    if case.private:
        case.equal(scaler._per_optimizer_states["any key"]["found_inf_per_device"], {}, "a new entry")
        _not_picklable_until_an_update(case, scaler)


def _not_picklable_until_an_update(case: Case, scaler: Any) -> None:
    case.raises(AssertionError, PICKLED_MIDWAY, pickle.dumps, case.raw(scaler))
    case.raises(AssertionError, NOTHING_TO_UPDATE_BY, scaler.update)
    case.raises(AssertionError, PICKLED_MIDWAY, pickle.dumps, case.raw(scaler))
    scaler.step(case.sgd([4.0]))
    scaler.update()
    clone = case.recorded(pickle.loads(pickle.dumps(case.raw(scaler))))
    case.equal(clone.get_scale(), 4.0, "scale of a clone made after update()")


@behaviour(
    "S10.4",
    "State passes to and from torch.amp.GradScaler by state_dict(); the pickled object does not load with "
    "weights_only=True",
)
def state_passes_by_state_dict(case: Case) -> None:
    ours = _trained_scaler(case)
    stock = case.ready_scaler(64.0, of=torch.amp.GradScaler)
    stock.load_state_dict(ours.state_dict())
    case.equal(stock.state_dict(), TRAINED, "state passed to torch's class")
    stock.update(32.0)
    for back in (case.new_scaler(4.0), case.ready_scaler(4.0)):
        back.load_state_dict(stock.state_dict())
        case.equal(back.state_dict(), {**TRAINED, "scale": 32.0}, "state passed back")
        case.equal(back.scale(case.tensor(1.0)), case.tensor(32.0), "scaled loss")
    file = _saved(case.raw(ours))
    case.raises(pickle.UnpicklingError, None, torch.load, file, weights_only=True)
