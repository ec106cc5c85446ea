"""Section 16, the defects of torch's scaler that show in its scale and its state: decay, growth, loading, pickling.

Whoever replaces the scaler should behave the same; each sentence says what happens and what would be right.
"""

from __future__ import annotations

import math
import pickle
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, iterate
from ampscaler.conformance.tools_texts import (
    BAD_NEW_SCALE,
    FLOAT16,
    INFERENCE,
    NO_ROOM_FOR_ONE,
    PICKLED_MIDWAY,
    STEPPED_TWICE,
)


@behaviour(
    "W4",
    "Overflow after overflow the scale decays to 0; then a clean iteration writes NaN into the parameters and no "
    "flag is raised; a floor, or a flag where the reciprocal is inf, would be right",
)
def the_scale_decays_to_zero(case: Case) -> None:
    scaler = case.ready_scaler(2.0**-148)
    iterate(case, scaler, INF)
    case.equal(scaler.get_scale(), 2.0**-149, "scale after one overflow")
    iterate(case, scaler, INF)
    case.equal(scaler.get_scale(), 0.0, "scale after two overflows")
    optimizer = case.sgd([0.0])  # every gradient is 0 at the scale 0
    scaler.step(optimizer)
    case.equal(case.gradients(optimizer), [[math.nan]], "gradient 0 times the reciprocal inf")
    case.equal(case.values(optimizer), [[math.nan]], "parameter")
    scaler.update()
    case.equal(case.growth_tracker(scaler), 1, "growth tracker: the iteration counts as clean")


def _grows_nevermore(case: Case, scaler: Any) -> None:
    for count in range(6, 20):
        iterate(case, scaler)
        case.equal(case.growth_tracker(scaler), count, "growth tracker")
        case.equal(scaler.get_scale(), 4.0, "scale, where growth at the next clean update would be right")


@behaviour(
    "W6",
    "Where the growth interval drops to the tracker or below, the scale never grows again until an overflow; it "
    "should grow at the next clean update",
)
def growth_stops_where_the_interval_drops(case: Case) -> None:
    scaler = case.ready_scaler(4.0, growth_interval=10)
    iterate(case, scaler, times=5)
    case.equal(case.growth_tracker(scaler), 5, "growth tracker")
    scaler.set_growth_interval(3)
    _grows_nevermore(case, scaler)
    iterate(case, scaler, INF)
    iterate(case, scaler, times=3)
    case.equal(scaler.get_scale(), 4.0, "scale after an overflow (2) and three clean updates (4)")
    scaler = case.ready_scaler(4.0, growth_interval=10)
    iterate(case, scaler, times=4)
    scaler.set_growth_interval(5)
    iterate(case, scaler)
    case.equal(scaler.get_scale(), 8.0, "scale where the interval drops to one above the tracker")
    scaler = case.ready_scaler(4.0, growth_interval=10)
    iterate(case, scaler, times=5)
    scaler.set_growth_interval(5)
    _grows_nevermore(case, scaler)
    scaler = case.ready_scaler(1.0)
    scaler.load_state_dict(
        {"scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3, "_growth_tracker": 5}
    )
    _grows_nevermore(case, scaler)


@behaviour(
    "W10",
    "update() refuses an int and a tensor of shape (1,), which its text allows, and every tensor where the device "
    "was given as 'cpu:0', 'cuda:0' or a torch.device; they should be taken",
)
def update_refuses_what_its_text_allows(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    case.raises(AttributeError, None, scaler.update, 2)
    case.raises(RuntimeError, NO_ROOM_FOR_ONE, scaler.update, case.tensor([2.0]))
    case.equal(scaler.get_scale(), 4.0, "scale after two refusals")
    scaler.update(case.tensor(2.0))
    case.equal(scaler.get_scale(), 2.0, "scale after update(0-dim tensor)")
    for device in (case.device, f"{case.device.type}:0", "cpu:0", "cuda:0"):
        scaler = case.ready_scaler(4.0, device=device)
        case.raises(AssertionError, BAD_NEW_SCALE, scaler.update, case.tensor(2.0))
        case.equal(scaler.get_scale(), 4.0, "scale after the refusal")
        scaler.update(2.0)
        case.equal(scaler.get_scale(), 2.0, "scale after update(float)")


@behaviour(
    "W13",
    "load_state_dict() checks no value, and where the last key is missing it has loaded the other four; it should "
    "load all or nothing",
)
def loading_is_not_atomic(case: Case) -> None:
    loaded = {"scale": 8.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7}
    scaler = case.ready_scaler(4.0)
    iterate(case, scaler)
    case.raises(KeyError, "'_growth_tracker'", scaler.load_state_dict, loaded)
    case.equal(
        scaler.state_dict(), {**loaded, "_growth_tracker": 1}, "state after the error, where the old one would be right"
    )
    scaler = case.ready_scaler(4.0)
    nonsense = {"scale": -2.0, "growth_factor": 0.5, "backoff_factor": 3.0, "growth_interval": 0, "_growth_tracker": -5}
    scaler.load_state_dict(nonsense)
    case.equal(scaler.state_dict(), nonsense, "state after loading nonsense")


@behaviour(
    "W15",
    "update() adds the flags into the first optimizer's record, so that who holds it sees an overflow that was the "
    "second one's; the record should stay as it is",
    private=True,
)
def update_writes_into_a_record(case: Case) -> None:
    scaler, clean, overflowed = case.ready_scaler(4.0), case.sgd([4.0]), case.sgd([INF])
    scaler.step(clean)
    scaler.step(overflowed)
    flag = next(iter(scaler._found_inf_per_device(clean).values()))
    case.equal(flag, case.tensor(0.0), "flag of the first optimizer before update()")
    scaler.update()
    case.equal(flag, case.tensor(1.0), "flag of the first optimizer after update(), where 0 would be right")


@behaviour(
    "W18",
    "A NaN is taken as a factor: with it for growth the scale never grows, for backoff it makes the scale NaN at "
    "the first overflow; it should be refused",
)
def nan_factors_are_taken(case: Case) -> None:
    for scaler in (case.new_scaler(growth_factor=math.nan), case.new_scaler(backoff_factor=math.nan)):
        case.equal(scaler.is_enabled(), True, "is_enabled()")
    scaler = case.ready_scaler(4.0, growth_interval=1)
    scaler.set_growth_factor(math.nan)
    for _ in range(3):
        iterate(case, scaler)
        case.equal(scaler.get_scale(), 4.0, "scale with a growth factor of NaN")
        case.equal(case.growth_tracker(scaler), 0, "growth tracker, which is reset each time")
    scaler = case.ready_scaler(4.0)
    scaler.set_backoff_factor(math.nan)
    iterate(case, scaler)
    case.equal(scaler.get_scale(), 4.0, "scale with a backoff factor of NaN, without an overflow")
    iterate(case, scaler, INF)
    case.equal(scaler.get_scale(), math.nan, "scale with a backoff factor of NaN after an overflow")


@behaviour(
    "W19",
    "The scale is rounded to float32 at the first scale() only, so that get_scale() and state_dict() differ before "
    "and after it; they should give the rounded value always",
)
def the_scale_is_rounded_late(case: Case) -> None:
    scaler = case.new_scaler(0.1)
    case.equal(scaler.get_scale(), 0.1, "get_scale() before the first scale()")
    case.equal(scaler.state_dict()["scale"], 0.1, "state_dict()['scale'] before the first scale()")
    scaler.scale(case.tensor(1.0))
    case.equal(scaler.get_scale(), 0.10000000149011612, "get_scale() after the first scale()")
    case.equal(scaler.state_dict()["scale"], 0.10000000149011612, "state_dict()['scale'] after the first scale()")


@behaviour(
    "W20",
    "A first scale() in inference mode, such as that of a dry run, makes every later update() fail after it has "
    "changed the scale; the scale should be made outside of that mode",
)
def inference_mode_breaks_the_later_update(case: Case) -> None:
    scaler = case.new_scaler(4.0)
    with torch.inference_mode():
        case.equal(scaler.scale(case.tensor(1.0)), case.tensor(4.0), "loss scaled in inference mode")
    overflowed = case.sgd([INF])
    scaler.step(overflowed)
    case.raises(RuntimeError, INFERENCE, scaler.update)
    case.raises(RuntimeError, STEPPED_TWICE, scaler.step, overflowed)  # the iteration has not ended
    case.equal(scaler.get_scale(), 2.0, "scale after the update() that failed, where no failure would be right")
    case.raises(RuntimeError, INFERENCE, scaler.update)
    case.equal(scaler.get_scale(), 1.0, "scale after a second update(), which counts the same overflow again")
    case.raises(RuntimeError, INFERENCE, scaler.update, 32.0)
    case.equal(scaler.get_scale(), 32.0, "scale after update(32.0), which fails as well")


@behaviour(
    "W22",
    "A failed unscale_(), or a mere look at an optimizer's record, makes the scaler refuse to be pickled until the "
    "next update(); neither should leave a trace",
)
def a_failure_makes_it_unpicklable(case: Case) -> None:
    scaler, half = case.ready_scaler(4.0), case.sgd(case.parameter([4.0], torch.float16))
    raw = case.raw(scaler)
    case.equal(pickle.loads(pickle.dumps(raw)).get_scale(), 4.0, "scale of a copy made before the failure")
    case.raises(ValueError, FLOAT16, scaler.unscale_, half)
    case.raises(AssertionError, PICKLED_MIDWAY, pickle.dumps, raw)
    iterate(case, scaler)
    case.equal(pickle.loads(pickle.dumps(raw)).get_scale(), 4.0, "scale of a copy made after update()")
    if case.private:
        case.equal(scaler._found_inf_per_device(half), {}, "record of an optimizer that was not used")
        case.raises(AssertionError, PICKLED_MIDWAY, pickle.dumps, raw)
        scaler.update(4.0)
        _ = scaler._per_optimizer_states[5]
        case.raises(AssertionError, PICKLED_MIDWAY, pickle.dumps, raw)
        scaler.update(4.0)
        case.equal(pickle.loads(pickle.dumps(raw)).get_scale(), 4.0, "scale of a copy made after update(4.0)")
