"""Section 13.2: the rule by which the update operator, and a scaler, change scale and growth tracker; its arguments."""

from __future__ import annotations

import math
import random
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.contract.s13_tools import DOUBLE
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import iterate, to_float32
from ampscaler.conformance.tools_texts import MODIFIED

INT_MAX, INT_MIN = 2**31 - 1, -(2**31)


def update(
    case: Case, scale: float, tracker: int, found_inf: float, growth: Any = 2.0, backoff: Any = 0.5, interval: Any = 3
) -> list[float]:
    """Calls the operator under test; returns [scale, tracker] after it."""
    new_scale, new_tracker, flag = case.tensor(scale), case.tensor(tracker, torch.int32), case.tensor(found_inf)
    case.operators.update(new_scale, new_tracker, flag, growth, backoff, interval)
    case.equal(flag, case.tensor(found_inf), "found_inf")
    return [new_scale.item(), new_tracker.item()]


def _rule(
    scale: float, tracker: int, found_inf: float, growth: float, backoff: float, interval: int
) -> tuple[float, int]:
    """The rule in Python's doubles and integers."""
    if found_inf != 0.0:
        return to_float32(scale * backoff), 0
    steps = tracker + 1 if tracker < INT_MAX else INT_MIN
    if steps != interval:
        return scale, steps
    grown = to_float32(scale * growth)
    return (grown if math.isfinite(grown) else scale), 0


@behaviour(
    "S13.22",
    "Where found_inf is not 0, NaN included, the update operator multiplies the scale by the backoff factor in "
    "double, rounded once to float32 and not clamped, and zeroes the tracker",
    operators=True,
)
def the_scale_backs_off_and_grows(case: Case) -> None:
    for found_inf in (1.0, 0.5, 2.0, -1.0, 1e-45, math.inf, -math.inf, math.nan):
        case.equal(update(case, 8.0, 2, found_inf), [4.0, 0], f"scale and tracker with found_inf {found_inf}")
    for found_inf in (0.0, -0.0):
        case.equal(update(case, 8.0, 1, found_inf), [8.0, 2], f"scale and tracker with found_inf {found_inf}")
        case.equal(update(case, 8.0, 2, found_inf), [16.0, 0], "the same in the third clean step")
    for scale, factor, expected in (
        (8.0, math.nan, math.nan),
        (8.0, math.inf, math.inf),
        (8.0, -0.5, -4.0),
        (8.0, 0.0, 0.0),
        (8.0, 4.0, 32.0),
        (3e38, 1e300, math.inf),
        (2.0**-149, 0.5, 0.0),  # a tie, to even
        (2.0**-149, 0.75, 2.0**-149),
        (2.0**-148, 0.75, 2.0**-147 / 2),
        (2.0**-140, 1e-30, 0.0),
        (1.0, 1.0 + 2.0**-24, 1.0),  # ties, to even
        (1.0, 1.0 + 3 * 2.0**-24, 1.0 + 2.0**-22),
        (1.0, 1.0 + 2.0**-24 + 2.0**-40, 1.0 + 2.0**-23),  # a factor rounded to float32 first would give 1
        (0.0, 0.5, 0.0),
        (math.inf, 0.5, math.inf),
        (math.nan, 0.5, math.nan),
    ):
        case.equal(update(case, scale, 2, 1.0, 2.0, factor), [expected, 0], f"scale {scale} backed off by {factor}")
    for lost in (0.0, math.inf, math.nan):
        case.equal(update(case, lost, 2, 0.0), [lost, 0], f"scale {lost} after growth")
    for scale, factor, expected in (
        (1.0, 1.0 + 2.0**-24 + 2.0**-40, 1.0 + 2.0**-23),
        (8.0, 0.5, 4.0),
        (8.0, -2.0, -16.0),
    ):
        case.equal(update(case, scale, 2, 0.0, factor), [expected, 0], f"scale {scale} grown by {factor}")
    scale = 65536.0
    for count in range(1, 167):
        scale = update(case, scale, 0, 1.0)[0]
        case.equal(scale, 2.0 ** (16 - count) if count < 166 else 0.0, f"65536 halved {count} times")
    _check_random_updates(case)
    if case.scaler_class is not None:
        _check_the_rule_of_a_scaler(case)


def _check_random_updates(case: Case) -> None:
    source = random.Random(13)
    for _ in range(500):
        scale = to_float32(source.choice((1.0, -1.0, 2.0**-140, 2.0**127)) * source.uniform(0.5, 1.99))
        interval = source.randint(-1, 4)
        arguments = (
            scale,
            source.randint(max(interval - 3, 0), max(interval + 1, 0)),
            source.choice((0.0, 0.0, 1.0, math.nan)),
            source.uniform(1.0, 4.0),
            source.uniform(-0.5, 1.0),
            interval,
        )
        case.equal(update(case, *arguments), list(_rule(*arguments)), f"scale and tracker after {arguments}")


def _check_the_rule_of_a_scaler(case: Case) -> None:
    scaler = case.ready_scaler(3.0, growth_factor=1.1, backoff_factor=0.3, growth_interval=2)
    scale, tracker = 3.0, 0
    for count, value in enumerate((1.0, 1.0, math.inf, 1.0, math.nan, *[1.0] * 30, -math.inf, 1.0, 1.0)):
        iterate(case, scaler, value)
        found_inf = 0.0 if math.isfinite(value) else 1.0
        scale, tracker = _rule(scale, tracker, found_inf, 1.1, 0.3, 2)
        case.equal(scaler.get_scale(), scale, f"scale after update {count + 1}")
        case.equal(case.growth_tracker(scaler), tracker, f"growth tracker after update {count + 1}")
    for start, factor, expected in ((2.0**-148, 0.5, 2.0**-149), (2.0**-149, 0.5, 0.0), (2.0**-149, 0.75, 2.0**-149)):
        scaler = case.ready_scaler(start, backoff_factor=factor)
        iterate(case, scaler, math.inf)
        case.equal(scaler.get_scale(), expected, f"scale {start} backed off by {factor}")


@behaviour(
    "S13.23",
    "Where the scale would grow to inf or NaN the update operator leaves it, and zeroes the tracker all the same",
    operators=True,
)
def growth_beyond_float32_is_refused(case: Case) -> None:
    largest = to_float32(3.4028234663852886e38)
    for scale, factor in (
        (to_float32(3e38), 2.0),
        (largest, 1.1),
        (-largest, 2.0),
        (8.0, math.inf),
        (8.0, math.nan),
        (8.0, 1e300),
        (largest, 1.0 + 2.0**-24),  # finite in double, inf in float32
        (math.inf, 2.0),
        (math.nan, 2.0),
    ):
        case.equal(update(case, scale, 2, 0.0, factor), [scale, 0], f"scale {scale} grown by {factor}")
    case.equal(update(case, 2.0**126, 2, 0.0), [2.0**127, 0], "growth to the last power of two")
    case.equal(
        update(case, largest, 2, 0.0, 1.0 + 2.0**-26), [largest, 0], "growth that rounds down to the largest value"
    )
    if case.scaler_class is not None:
        scaler = case.ready_scaler(2.0**126, growth_interval=2)
        for scale, tracker in ((2.0**126, 1), (2.0**127, 0), (2.0**127, 1), (2.0**127, 0), (2.0**127, 1)):
            iterate(case, scaler, 1.0)
            case.equal([scaler.get_scale(), case.growth_tracker(scaler)], [scale, tracker], "scale and growth tracker")


@behaviour(
    "S13.24",
    "Where found_inf is 0 the update operator adds 1 to the tracker, wrapping at 32 bits, and grows the scale and "
    "zeroes the tracker only if it then equals the interval: one beyond it counts on until a backoff",
    operators=True,
)
def growth_needs_equality(case: Case) -> None:
    for tracker, interval, expected in (
        (0, 1, [16.0, 0]),
        (1, 3, [8.0, 2]),
        (2, 3, [16.0, 0]),
        (3, 3, [8.0, 4]),
        (5, 3, [8.0, 6]),
        (0, 0, [8.0, 1]),
        (7, 0, [8.0, 8]),
        (0, -1, [8.0, 1]),
        (-1, 0, [16.0, 0]),
        (-2, -1, [16.0, 0]),
        (INT_MAX - 1, INT_MAX, [16.0, 0]),
        (INT_MAX, INT_MAX, [8.0, INT_MIN]),
        (INT_MAX, 2000, [8.0, INT_MIN]),
        (INT_MIN, 2000, [8.0, INT_MIN + 1]),
    ):
        case.equal(
            update(case, 8.0, tracker, 0.0, interval=interval), expected, f"tracker {tracker}, interval {interval}"
        )
    if case.device.type == "cpu":
        for tracker, interval in ((1, 2**32 + 2), (INT_MAX, 2**31), (0, 2**32 + 1), (0, 2**63 - 1)):
            expected = [8.0, tracker + 1 if tracker < INT_MAX else INT_MIN]
            what = f"tracker {tracker}, interval {interval} of 64 bits"
            case.equal(update(case, 8.0, tracker, 0.0, interval=interval), expected, what)
    if case.scaler_class is not None:
        _check_the_interval_of_a_scaler(case)


def _check_the_interval_of_a_scaler(case: Case) -> None:
    scaler = case.ready_scaler(8.0, growth_interval=10)
    for count in range(1, 6):
        iterate(case, scaler, 1.0)
        case.equal(case.growth_tracker(scaler), count, "growth tracker")
    for interval in (3, 5):  # below the tracker, and equal to it
        scaler.set_growth_interval(interval)
        iterate(case, scaler, 1.0)
        case.equal(scaler.get_scale(), 8.0, f"scale with the tracker beyond the interval {interval}")
    case.equal(case.growth_tracker(scaler), 7, "growth tracker beyond the interval")
    for value, scale, tracker in ((math.inf, 4.0, 0), *[(1.0, 4.0, count) for count in range(1, 5)], (1.0, 8.0, 0)):
        iterate(case, scaler, value)
        case.equal(
            [scaler.get_scale(), case.growth_tracker(scaler)], [scale, tracker], "scale and tracker after a backoff"
        )
    scaler = case.ready_scaler(8.0)
    scaler.load_state_dict({**scaler.state_dict(), "_growth_tracker": INT_MAX})
    iterate(case, scaler, 1.0)
    case.equal([scaler.get_scale(), case.growth_tracker(scaler)], [8.0, INT_MIN], "scale and tracker beyond 32 bits")
    if case.device.type == "cpu":
        scaler = case.ready_scaler(8.0, growth_interval=2**32 + 2)
        for tracker in (1, 2, 3):
            iterate(case, scaler, 1.0)
            case.equal([scaler.get_scale(), case.growth_tracker(scaler)], [8.0, tracker], "scale and tracker")


@behaviour(
    "S13.25",
    "The update operator writes in place and returns the scale; it bumps the scale's version by one and leaves the "
    "tracker's; a scale that requires grad raises RuntimeError",
    operators=True,
)
def the_update_is_made_in_place(case: Case) -> None:
    for found_inf, interval in ((0.0, 3), (0.0, 1), (1.0, 3)):
        scale, tracker, flag = case.tensor(8.0), case.tensor(0, torch.int32), case.tensor(found_inf)
        tensors, before = (scale, tracker, flag), (scale.data_ptr(), tracker.data_ptr())
        versions = [tensor._version for tensor in tensors]
        result = case.operators.update(*tensors, 2.0, 0.5, interval)
        after = [tensor._version for tensor in tensors]
        case.equal(
            [b - a for a, b in zip(versions, after, strict=True)], [1, 0, 0], "version bumps of the three tensors"
        )
        case.equal((scale.data_ptr(), tracker.data_ptr()), before, "addresses")
        if case.operators.is_aten:
            case.same(torch._amp_update_scale_(*tensors, 2.0, 0.5, interval), scale)
            case.equal(result.data_ptr(), scale.data_ptr(), "address of the result")
    leaf, tracker = torch.nn.Parameter(case.tensor(8.0)), case.tensor(0, torch.int32)
    text = "a leaf Variable that requires grad is being used in an in-place operation."
    for flag in (case.tensor(0.0), case.tensor(1.0), case.tensor([])):  # before any check
        case.raises(RuntimeError, text, case.operators.update, leaf, tracker, flag, 2.0, 0.5, 1)
    case.equal([leaf.item(), tracker.item(), leaf._version], [8.0, 0, 0], "scale, tracker, version")
    with torch.no_grad():
        case.operators.update(leaf, tracker, case.tensor(0.0), 2.0, 0.5, 1)
    case.equal(leaf.item(), 16.0, "a leaf updated without grad mode")
    loss = torch.nn.Parameter(case.tensor(1.0))
    scale = case.tensor(8.0)
    scaled = loss * scale
    case.operators.update(scale, tracker, case.tensor(0.0), 2.0, 0.5, 3)
    case.raises(RuntimeError, MODIFIED, scaled.backward)


@behaviour(
    "S13.26",
    "The update operator raises RuntimeError unless growth_tracker, current_scale and found_inf have one element "
    "and are int32, float32 and float32, checked in this order, sizes first",
    operators=True,
)
def the_arguments_are_checked_in_order(case: Case) -> None:
    two, none, one, flag = (
        case.tensor([1.0, 2.0], DOUBLE),
        case.tensor([], DOUBLE),
        case.tensor(1.0, DOUBLE),
        case.tensor(0.0),
    )
    scale, tracker, long = case.tensor(8.0), case.tensor(1, torch.int32), case.tensor(1, torch.int64)
    sizes = ("growth_tracker", "current_scale", "found_inf")
    size_texts = [f"{name} must be a 1-element tensor." for name in sizes]
    for arguments, text in (
        ((two, two, two), size_texts[0]),
        ((scale, none, flag), size_texts[0]),
        ((two, one, none), size_texts[1]),
        ((none, tracker, flag), size_texts[1]),
        ((one, one, two), size_texts[2]),
        ((scale, tracker, none), size_texts[2]),
        ((one, one, one), "growth_tracker must be an int tensor."),
        ((scale, long, flag), "growth_tracker must be an int tensor."),
        ((one, tracker, one), "current_scale must be a float tensor."),
        ((long, tracker, flag), "current_scale must be a float tensor."),
        ((scale, tracker, one), "found_inf must be a float tensor."),
        ((scale, tracker, flag.half()), "found_inf must be a float tensor."),
    ):
        before = [argument.tolist() for argument in arguments]
        case.raises(RuntimeError, text, case.operators.update, *arguments, 2.0, 0.5, 2)
        case.equal([argument.tolist() for argument in arguments], before, "the tensors")
    for shape in ((1,), (1, 1), (1, 1, 1)):
        shaped = scale.clone().reshape(shape), tracker.clone().reshape(shape), flag.reshape(shape)
        case.operators.update(*shaped, 2.0, 0.5, 2)
        case.equal(
            shaped[:2], (case.tensor(16.0).reshape(shape), case.tensor(0, torch.int32).reshape(shape)), f"{shape}"
        )


@behaviour(
    "S13.27",
    "The update operator takes factors that are ints or 0-dim tensors; an interval that is no int raises, TypeError "
    "from torch's Python function",
    operators=True,
)
def kinds_of_numbers(case: Case) -> None:
    two: Any
    for two in (2, 2.0, torch.tensor(2.0), torch.tensor(2), torch.tensor(2.0, dtype=DOUBLE)):
        case.equal(update(case, 8.0, 2, 0.0, growth=two), [16.0, 0], f"scale and tracker, grown by {two!r}")
        case.equal(update(case, 8.0, 2, 1.0, backoff=two), [16.0, 0], f"scale and tracker, backed off by {two!r}")
        if case.operators.is_aten:
            scale = case.tensor(8.0)
            torch._amp_update_scale_(scale, case.tensor(2, torch.int32), case.tensor(0.0), two, two, 3)
            case.equal(scale, case.tensor(16.0), f"scale grown by {two!r}, through torch's Python function")
    scale, tracker, flag = case.tensor(8.0), case.tensor(2, torch.int32), case.tensor(0.0)
    wrong: list[tuple[Any, Any, Any]] = [
        (2.0, 0.5, 3.0),
        (2.0, 0.5, "3"),
        (2.0, 0.5, None),
        ("2", 0.5, 3),
        (2.0, None, 3),
        (2.0, 0.5j, 3),
    ]
    for numbers in wrong:
        case.raises(RuntimeError, None, case.operators.update, scale, tracker, flag, *numbers)  # what torch.ops raises
        if case.operators.is_aten:
            case.raises(TypeError, None, torch._amp_update_scale_, scale, tracker, flag, *numbers)
    if case.operators.is_aten:
        yes: Any = True
        text = "_amp_update_scale_(): argument 'growth_interval' (position 6) must be int, not bool"
        case.raises(TypeError, text, torch._amp_update_scale_, scale, tracker, flag, 2.0, 0.5, yes)
    case.equal([scale.item(), tracker.item()], [8.0, 2], "scale and tracker")
