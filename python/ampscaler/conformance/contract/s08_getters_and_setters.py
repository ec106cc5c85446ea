"""Section 8: what can be asked of a scaler, what can be set, and the two checks that work on an optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch.amp import grad_scaler as stock

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, home, iterate, sparse, spy
from ampscaler.conformance.tools_texts import never_scaled, no_attribute


@behaviour(
    "S8.1",
    "get_scale() returns 1.0 if disabled, the very object given as init_scale before the first scale(), and then "
    "the float32 scale as a Python float, got by the private self._get_scale_async()",
)
def get_scale_gives_the_start_scale_unrounded(case: Case) -> None:
    case.equal(case.new_scaler(8.0, enabled=False).get_scale(), 1.0, "scale of a disabled scaler")
    scaler = case.new_scaler(0.1)
    case.equal(scaler.get_scale(), 0.1, "scale before scale()")
    scaler.scale(case.tensor(1.0))
    case.equal(scaler.get_scale(), 0.10000000149011612, "scale after scale()")
    scaler = case.ready_scaler(4)
    case.equal(scaler.get_scale(), 4.0, "scale after scale(), given as an int")
    case.equal(case.new_scaler(4).get_scale(), 4, "scale before scale(), given as an int")
    given = case.tensor(4.0)
    case.same(case.new_scaler(given).get_scale(), given, "scale before scale(), given as a tensor")
    if case.private:
        _get_scale_async_is_asked(case)


def _get_scale_async_is_asked(case: Case) -> None:
    scaler, other = case.ready_scaler(4.0), case.tensor(77.0)
    scaler._get_scale_async = lambda: other
    case.equal(scaler.get_scale(), 77.0, "scale, with a _get_scale_async() that returns another one")
    scaler._get_scale_async = lambda: None
    case.equal(scaler.get_scale(), 4.0, "scale, with a _get_scale_async() that returns None: the start scale")
    disabled = case.new_scaler(enabled=False)
    disabled._get_scale_async = lambda: other
    case.equal(disabled.get_scale(), 1.0, "scale of a disabled scaler, which asks nobody")


@behaviour(
    "S8.2",
    "The growth tracker is what was assigned or loaded, or 0, before the first scale(), then what the updates made "
    "of it; is_enabled() tells the switch; the private _get_scale_async() returns _scale itself, or None",
)
def tracker_and_switch_can_be_read(case: Case) -> None:
    case.equal(case.new_scaler().is_enabled(), True, "is_enabled()")
    case.equal(case.new_scaler(enabled=False).is_enabled(), False, "is_enabled()")
    scaler, optimizer = case.new_scaler(4.0), case.sgd([4.0])
    case.equal(case.growth_tracker(scaler), 0, "tracker before scale()")
    scaler.load_state_dict({**scaler.state_dict(), "_growth_tracker": 7})
    case.equal(case.growth_tracker(scaler), 7, "tracker loaded before scale()")
    if case.private:
        case.equal(scaler._get_growth_tracker(), 7, "_get_growth_tracker()")
        case.equal(scaler._get_scale_async(), None, "_get_scale_async()")
        case.equal(case.new_scaler(enabled=False)._get_growth_tracker(), 0, "_get_growth_tracker() when disabled")
    scaler.scale(case.tensor(1.0))
    case.equal(case.growth_tracker(scaler), 7, "tracker after scale()")
    scaler.step(optimizer)
    scaler.update()
    case.equal(case.growth_tracker(scaler), 8, "tracker after a clean update")
    if case.private:
        case.equal(scaler._get_growth_tracker(), 8, "_get_growth_tracker()")
        case.same(scaler._get_scale_async(), scaler._scale, "_get_scale_async()")
        scaler = case.new_scaler()
        scaler._init_growth_tracker = start = 2.5
        case.same(scaler._get_growth_tracker(), start, "_get_growth_tracker() before scale()")


def _update_after(case: Case, scaler: Any, gradient: float) -> Any:
    """The scale after one iteration with this gradient."""
    iterate(case, scaler, gradient)
    return scaler.get_scale()


@behaviour(
    "S8.3",
    "The getters and setters of growth_factor, backoff_factor and growth_interval are plain attributes: nothing is "
    "checked, and the next update() uses what was set",
)
def setters_work_at_the_next_update(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    scaler.set_growth_factor(3.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(1)
    numbers = [scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()]
    case.equal(numbers, [3.0, 0.25, 1], "factors and interval")
    case.equal(scaler.get_scale(), 4.0, "scale before the update")
    case.equal(_update_after(case, scaler, 4.0), 12.0, "scale after growth by 3")
    case.equal(_update_after(case, scaler, INF), 3.0, "scale after backoff by 0.25")
    if case.private:
        scaler._growth_factor, scaler._backoff_factor, scaler._growth_interval = 5.0, 0.2, 2
        numbers = [scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()]
        case.equal(numbers, [5.0, 0.2, 2], "factors and interval, assigned")
        case.equal(_update_after(case, scaler, 4.0), 3.0, "scale after the first of two clean updates")
        case.equal(_update_after(case, scaler, 4.0), 15.0, "scale after growth by 5")
        case.equal(_update_after(case, scaler, INF), 3.0, "scale after backoff by 0.2")
    scaler = case.ready_scaler(4.0, growth_interval=1)
    scaler.set_growth_factor(0.5)
    scaler.set_backoff_factor(3)
    case.equal(_update_after(case, scaler, 4.0), 2.0, "scale after growth by 0.5")
    case.equal(_update_after(case, scaler, INF), 6.0, "scale after backoff by 3")
    for name in ("growth_factor", "backoff_factor", "growth_interval"):
        getattr(scaler, f"set_{name}")("x")
        case.equal(getattr(scaler, f"get_{name}")(), "x", name)


@behaviour(
    "S8.4",
    "On a disabled scaler the setters work and the getters do afterwards; before that the getters, "
    "_get_scale_async, _lazy_init_scale_growth_tracker, _check_inf_per_device and _found_inf_per_device raise "
    "AttributeError",
)
def getters_of_a_disabled_scaler_raise(case: Case) -> None:
    scaler = case.new_scaler(enabled=False)
    scaler.set_growth_factor(3.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(7)
    numbers = [scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()]
    case.equal(numbers, [3.0, 0.25, 7], "factors and interval")
    scaler, name = case.new_scaler(enabled=False), case.scaler_class.__name__
    if case.private:
        optimizer = case.sgd([4.0])
        for method, argument, attribute in (
            ("_get_scale_async", [], "_scale"),
            ("_lazy_init_scale_growth_tracker", [case.device], "_growth_tracker"),
            ("_check_inf_per_device", [optimizer], "_scale"),
            ("_found_inf_per_device", [optimizer], "_per_optimizer_states"),
        ):
            case.raises(AttributeError, no_attribute(name, attribute), getattr(scaler, method), *argument)
    for attribute in ("growth_factor", "backoff_factor", "growth_interval"):
        case.raises(AttributeError, no_attribute(name, f"_{attribute}"), getattr(scaler, f"get_{attribute}"))


@behaviour(
    "S8.5",
    "unscale_(), step() and update() before the first scale() raise AssertionError with their name in the text; the "
    "private _check_scale_growth_tracker(name), which they call, returns (_scale, _growth_tracker)",
)
def a_scale_is_needed_first(case: Case) -> None:
    scaler, optimizer = case.new_scaler(4.0), case.sgd([4.0])
    case.raises(AssertionError, never_scaled("unscale_"), scaler.unscale_, optimizer)
    case.raises(AssertionError, never_scaled("step"), scaler.step, optimizer)
    case.raises(AssertionError, never_scaled("update"), scaler.update)
    case.raises(AssertionError, never_scaled("update"), scaler.update, 8.0)
    case.equal([case.gradients(optimizer), case.values(optimizer)], [[[4.0]], [[1.0]]], "gradients and parameters")
    if case.private:
        check = scaler._check_scale_growth_tracker
        case.raises(AssertionError, never_scaled("any name"), check, "any name")
        scaler.scale(case.tensor(1.0))
        both = check("any name")
        case.same(type(both), tuple, "type of the result")
        case.equal(len(both), 2, "length of the result")
        case.same(both[0], scaler._scale, "first of the result")
        case.same(both[1], scaler._growth_tracker, "second of the result")
        scaler._growth_tracker = None
        case.raises(AssertionError, never_scaled("any name", "_growth_tracker"), check, "any name")


@behaviour(
    "S8.6",
    "_check_inf_per_device calls _unscale_grads_ with inv_scale 1, found_inf 0 and allow_fp16 True, stores and "
    "returns the result and leaves stage and gradients; _found_inf_per_device returns the stored dict",
    private=True,
)
def infs_can_be_looked_for(case: Case) -> None:
    scaler, optimizer = case.new_scaler(4.0), case.sgd([4.0, INF], case.parameter([2.0], torch.float16))
    case.raises(AssertionError, never_scaled("_check_inf_per_device"), scaler._check_inf_per_device, optimizer)
    case.equal(len(scaler._per_optimizer_states), 0, "number of entries")
    scaler.scale(case.tensor(1.0))
    seen = spy(scaler, "_unscale_grads_")
    found = scaler._check_inf_per_device(optimizer)
    case.equal(found, {home(case): case.tensor(1.0)}, "result")
    case.equal(seen, [(optimizer, case.tensor(1.0), case.tensor(0.0), True)], "arguments of _unscale_grads_")
    entry = scaler._per_optimizer_states[id(optimizer)]
    case.same(entry["found_inf_per_device"], found, "stored result")
    case.same(entry["stage"], stock.OptState.READY, "stage")
    case.equal(case.gradients(optimizer), [[4.0, INF], [2.0]], "gradients")
    case.same(scaler._found_inf_per_device(optimizer), found, "_found_inf_per_device()")
    again = scaler._check_inf_per_device(optimizer)
    case.true(again is not found, "a second call makes a new record")
    case.same(entry["found_inf_per_device"], again, "stored result of the second call")

    uncoalesced = sparse(case, [1, 1], [2.0, 3.0], torch.float16)
    optimizer = case.sgd(uncoalesced)
    entry = scaler._per_optimizer_states[id(optimizer)]
    entry["stage"] = stock.OptState.UNSCALED
    scaler._check_inf_per_device(optimizer)
    case.same(entry["stage"], stock.OptState.UNSCALED, "stage")
    coalesced = case.parameters(optimizer)[0].grad
    case.true(coalesced is not uncoalesced, "a sparse float16 gradient is replaced")
    case.equal(coalesced, uncoalesced.coalesce(), "sparse gradient")
    unknown = case.sgd([4.0])
    case.equal(scaler._found_inf_per_device(unknown), {}, "_found_inf_per_device() of an unknown optimizer")
    case.true(id(unknown) in scaler._per_optimizer_states, "_found_inf_per_device() makes an entry")
