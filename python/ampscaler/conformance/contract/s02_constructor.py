"""Section 2: what the constructor takes, checks and keeps."""

from __future__ import annotations

import collections
import importlib.util
import inspect
from fractions import Fraction
from typing import Any

import torch
from torch.amp import grad_scaler as stock

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, NAN, machine
from ampscaler.conformance.tools_texts import BACKOFF, DISABLING, GROWTH

ATTRIBUTES = [
    "_device",
    "_enabled",
    "_init_scale",
    "_scale",
    "_growth_factor",
    "_backoff_factor",
    "_growth_interval",
    "_init_growth_tracker",
    "_growth_tracker",
    "_per_optimizer_states",
]


def _numbers(scaler: Any) -> list[Any]:
    factors = [scaler.get_growth_factor(), scaler.get_backoff_factor()]
    return [scaler.get_scale(), *factors, scaler.get_growth_interval(), scaler.is_enabled()]


@behaviour(
    "S2.1",
    "The constructor takes device='cuda', init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, "
    "growth_interval=2000 and enabled=True, by position in this order or by keyword",
)
def six_arguments_in_this_order(case: Case) -> None:
    device = case.device.type
    case.equal(_numbers(case.recorded(case.scaler_class(device))), [65536.0, 2.0, 0.5, 2000, True], "defaults")
    by_position = case.recorded(case.scaler_class(device, 1024.0, 3.0, 0.25, 7, True))
    case.equal(_numbers(by_position), [1024.0, 3.0, 0.25, 7, True], "given by position")
    by_keyword = case.new_scaler(1024.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7, enabled=True)
    case.equal(_numbers(by_keyword), [1024.0, 3.0, 0.25, 7, True], "given by keyword")
    integer = case.new_scaler(growth_factor=3)
    case.true(integer.get_growth_factor() == 3, "a growth factor that is an int is kept by value")
    case.equal(
        case.recorded(case.scaler_class(device, 1024.0, 3.0, 0.25, 7, False)).is_enabled(), False, "is_enabled()"
    )
    case.raises(TypeError, None, case.scaler_class, device, 1024.0, 3.0, 0.25, 7, True, None)
    with machine(cuda=False):
        case.equal(
            case.recorded(case.scaler_class()).is_enabled(), False, "is_enabled() of the default device, no CUDA"
        )
    if case.private:
        all_parameters = inspect.signature(case.scaler_class).parameters.values()
        # What a scaler has beyond torch's must be given by name, and may be left out.
        own = [p for p in all_parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty]
        parameters = [parameter for parameter in all_parameters if parameter not in own]
        expected = [
            ("device", "cuda"),
            ("init_scale", 65536.0),
            ("growth_factor", 2.0),
            ("backoff_factor", 0.5),
            ("growth_interval", 2000),
            ("enabled", True),
        ]
        case.equal([(parameter.name, parameter.default) for parameter in parameters], expected, "parameters")
        kinds = {parameter.kind for parameter in parameters}
        case.equal(list(kinds), [inspect.Parameter.POSITIONAL_OR_KEYWORD], "kinds of the parameters")


@behaviour(
    "S2.2",
    "The constructor keeps device and enabled as the very objects that were given; is_enabled() returns the latter",
)
def device_and_switch_are_kept_as_given(case: Case) -> None:
    case.same(case.new_scaler(enabled=True).is_enabled(), True, "is_enabled()")
    case.same(case.new_scaler(enabled=False).is_enabled(), False, "is_enabled()")
    if case.private:
        device, switch = torch.device("cuda:0"), [0]
        scaler = case.new_scaler(device=device, enabled=switch)
        case.same(scaler._device, device, "_device")
        case.same(scaler._enabled, switch, "_enabled")
    case.equal(case.new_scaler(enabled="no").is_enabled(), "no", "is_enabled()")
    switches: list[list[int]] = [[0], []]
    for switch in switches:
        case.same(case.new_scaler(enabled=switch).is_enabled(), switch, "is_enabled()")


@behaviour(
    "S2.3",
    "An enabled scaler for device 'cuda' on a machine with neither CUDA nor a module torch_xla gives a UserWarning "
    "and is disabled",
)
def without_cuda_the_scaler_is_disabled(case: Case) -> None:
    with machine(cuda=False):
        case.equal(case.new_scaler(device="cuda").is_enabled(), False, "is_enabled() without CUDA")
        warning = [(UserWarning, DISABLING)]
        equal = "".join(("cu", "da"))  # to 'cuda', and another object
        scaler = case.warns(warning, case.new_scaler, device=equal)
        case.equal(scaler.is_enabled(), False, "is_enabled() without CUDA")
        scaler = case.warns(warning, case.new_scaler, device="cuda", enabled="yes")
        case.equal(scaler.is_enabled(), False, "is_enabled() without CUDA")
        case.equal(case.warns([], case.new_scaler, device="cuda", enabled=0).is_enabled(), 0, "is_enabled()")
    for cuda, xla in ((True, False), (False, True), (True, True)):
        with machine(cuda=cuda, xla=xla):
            scaler = case.warns([], case.new_scaler, device="cuda")
            case.equal(scaler.is_enabled(), True, f"is_enabled() with cuda={cuda}, torch_xla={xla}")


@behaviour(
    "S2.4",
    "A scaler with enabled=False does not warn; only a device equal to 'cuda' is looked at, so that 'cuda:0', a "
    "torch.device, any other string, None and 5 are accepted unchecked and enabled",
)
def other_devices_are_not_looked_at(case: Case) -> None:
    with machine(cuda=False):
        case.equal(case.warns([], case.new_scaler, device="cuda", enabled=False).is_enabled(), False, "is_enabled()")
        case.equal(case.warns([], case.new_scaler, device="cpu").is_enabled(), True, "is_enabled() for 'cpu'")
        name: Any = "cuda"
        case.true(torch.device("cuda") != name, "torch.device('cuda') != 'cuda'")
        for device in ("cuda:0", torch.device("cuda"), torch.device("cuda:0"), "xpu", "no such device", None, 5):
            scaler = case.warns([], case.new_scaler, device=device)
            case.equal(scaler.is_enabled(), True, f"is_enabled() for device {device!r}")


@behaviour(
    "S2.5",
    "A growth factor <= 1 and then a backoff factor >= 1 raise AssertionError, a string TypeError from the "
    "comparison; NaN passes",
)
def the_factors_are_checked(case: Case) -> None:
    for growth_factor in (1.0, 1, 0.5, 0.0, -2.0, -INF):
        case.raises(AssertionError, GROWTH, case.new_scaler, growth_factor=growth_factor)
    for backoff_factor in (1.0, 1, 1.5, INF):
        case.raises(AssertionError, BACKOFF, case.new_scaler, backoff_factor=backoff_factor)
    case.raises(AssertionError, GROWTH, case.new_scaler, growth_factor=1.0, backoff_factor=1.0)
    scaler = case.new_scaler(growth_factor=1.0000000000000002, backoff_factor=0.9999999999999999)
    case.equal(scaler.get_growth_factor(), 1.0000000000000002, "smallest growth factor")
    case.equal(scaler.get_backoff_factor(), 0.9999999999999999, "largest backoff factor")
    for name, sign in (("growth_factor", "<="), ("backoff_factor", ">=")):
        text = f"'{sign}' not supported between instances of 'str' and 'float'"
        case.raises(TypeError, text, case.new_scaler, **{name: "2"})
    case.equal(case.new_scaler(growth_factor=NAN).get_growth_factor(), NAN, "growth factor")
    case.equal(case.new_scaler(backoff_factor=NAN).get_backoff_factor(), NAN, "backoff factor")


@behaviour(
    "S2.6",
    "The constructor checks nothing else: init_scale may be anything, the backoff factor 0 or less, the growth "
    "interval 0, negative or a float",
)
def nothing_else_is_checked(case: Case) -> None:
    scales: list[Any] = [3, True, case.tensor(3.0)]
    if importlib.util.find_spec("numpy") is not None:
        scales.append(torch.tensor([3.0]).numpy()[0])
    for init_scale in scales:
        scaler = case.new_scaler(init_scale)
        case.same(scaler.get_scale(), init_scale, "get_scale() before scale()")
        case.equal(scaler.scale(case.tensor(1.0)), case.tensor(float(init_scale)), "scaled loss")
    for init_scale in (0, -1.0, INF, NAN, "4"):
        case.equal(case.new_scaler(init_scale).is_enabled(), True, f"is_enabled() at scale {init_scale}")
    for backoff_factor in (0.0, -0.5, -INF):
        scaler = case.new_scaler(backoff_factor=backoff_factor)
        case.equal(scaler.get_backoff_factor(), backoff_factor, "backoff factor")
    for growth_interval in (0, -5, 2.5):
        scaler = case.new_scaler(growth_interval=growth_interval)
        case.equal(scaler.get_growth_interval(), growth_interval, "growth interval")


@behaviour(
    "S2.7",
    "A scaler built disabled checks none of its arguments and has no attributes but _device and _enabled",
)
def a_disabled_scaler_checks_nothing(case: Case) -> None:
    bad = {"growth_factor": 0.0, "backoff_factor": 3.0, "growth_interval": -1, "enabled": False}
    scaler = case.new_scaler(-INF, **bad)
    case.equal(scaler.is_enabled(), False, "is_enabled()")
    if case.private:
        expected = {"_device": case.device.type, "_enabled": False}
        case.equal(case.raw(scaler).__dict__, expected, "__dict__")
    scaler = case.new_scaler(None, growth_factor="x", backoff_factor=None, growth_interval=[], enabled=False)
    case.equal(scaler.is_enabled(), False, "is_enabled() with arguments of any type")


@behaviour(
    "S2.8",
    "An enabled scaler has _device, _enabled, _init_scale and the factors as given, _growth_interval, "
    "_init_growth_tracker=0, _scale=None, _growth_tracker=None and _per_optimizer_states, a defaultdict of fresh "
    "entries",
    private=True,
)
def an_enabled_scaler_has_ten_attributes(case: Case) -> None:
    init_scale, factors = case.tensor(4.0), (3.5, 0.25)
    scaler = case.raw(
        case.new_scaler(init_scale, growth_factor=factors[0], backoff_factor=factors[1], growth_interval=7)
    )
    case.equal(list(scaler.__dict__), ATTRIBUTES, "names in __dict__")
    case.same(scaler._init_scale, init_scale, "_init_scale")
    case.same(scaler._growth_factor, factors[0], "_growth_factor")
    case.same(scaler._backoff_factor, factors[1], "_backoff_factor")
    case.equal(scaler._growth_interval, 7, "_growth_interval")
    case.equal(scaler._init_growth_tracker, 0, "_init_growth_tracker")
    case.same(scaler._scale, None, "_scale")
    case.same(scaler._growth_tracker, None, "_growth_tracker")
    entries = scaler._per_optimizer_states
    case.same(type(entries), collections.defaultdict, "type of _per_optimizer_states")
    case.equal(len(entries), 0, "number of entries")
    case.same(entries.default_factory, stock._refresh_per_optimizer_state, "default_factory")
    _factors_are_kept_as_given(case)


def _factors_are_kept_as_given(case: Case) -> None:
    for growth, backoff, interval in (
        (3, -2, 7),
        (Fraction(7, 2), Fraction(1, 3), 2.5),
        (10**30, -(10**30), -(10**30)),
    ):
        scaler = case.new_scaler(growth_factor=growth, backoff_factor=backoff, growth_interval=interval)
        case.same(scaler.get_growth_factor(), growth, "get_growth_factor()")
        case.same(scaler.get_backoff_factor(), backoff, "get_backoff_factor()")
        case.same(scaler.get_growth_interval(), interval, "get_growth_interval()")


@behaviour("S2.9", "Without CUDA a scaler for 'cuda' is disabled before its factors are checked, so that bad ones pass")
def without_cuda_bad_factors_pass(case: Case) -> None:
    for bad in ({"growth_factor": 0.5}, {"backoff_factor": 2.0}, {"growth_factor": "x", "backoff_factor": "x"}):
        with machine(cuda=False):
            scaler = case.new_scaler(device="cuda", **bad)
        case.equal(scaler.is_enabled(), False, "is_enabled()")
        if case.private:
            case.equal(case.raw(scaler).__dict__, {"_device": "cuda", "_enabled": False}, "__dict__")
        with machine(cuda=False, xla=True):
            error = TypeError if "x" in bad.values() else AssertionError
            case.raises(error, None, case.new_scaler, device="cuda", **bad)


@behaviour(
    "S2.10",
    "Every method looks at the switch when it is called, by its truth: the private _enabled may be assigned later, "
    "but a scaler that was built disabled then raises AttributeError at its first use",
)
def the_switch_is_asked_at_each_call(case: Case) -> None:
    _has_no_effect(case, case.new_scaler(enabled=False))
    if not case.private:
        return
    for off in (False, 0, "", None):
        scaler = case.ready_scaler(4.0)
        scaler._enabled = off
        _has_no_effect(case, scaler)
        case.equal(scaler._get_growth_tracker(), 0, "_get_growth_tracker()")
        case.same(case.raw(scaler).__getstate__()["_scale"], scaler._scale, "_scale in __getstate__()")
        case.same(scaler.is_enabled(), off, "is_enabled()")
        for on in (True, 1, "no"):
            scaler._enabled = on
            case.equal(scaler.scale(case.tensor(1.0)), case.tensor(4.0), "scaled loss after switching on again")
            case.equal(scaler.get_scale(), 4.0, "scale after switching on again")
    optimizer, state = case.sgd([4.0]), {"scale": 8.0}
    scaler = case.new_scaler(enabled=False)
    scaler._enabled = True
    for method, arguments in (
        (scaler.scale, [case.tensor(1.0)]),
        (scaler.unscale_, [optimizer]),
        (scaler.step, [optimizer]),
        (scaler.update, []),
        (scaler.get_scale, []),
        (scaler.state_dict, []),
        (scaler.load_state_dict, [state]),
    ):
        case.raises(
            AttributeError, f"'{case.scaler_class.__name__}' object has no attribute '_scale'", method, *arguments
        )
    case.equal(case.values(optimizer), [[1.0]], "parameters")


def _has_no_effect(case: Case, scaler: Any) -> None:
    """The scaler behaves as a disabled one: nothing is scaled, the optimizer steps on the gradients as they are."""
    loss, optimizer = case.tensor(3.0), case.sgd([4.0])
    case.same(scaler.scale(loss), loss, "scaled loss")
    case.equal(scaler.unscale_(optimizer), None, "result of unscale_")
    case.equal(case.gradients(optimizer), [[4.0]], "gradients")
    scaler.step(optimizer)
    case.equal(case.values(optimizer), [[-3.0]], "parameters")
    case.equal(scaler.update(), None, "result of update")
    case.equal(scaler.get_scale(), 1.0, "get_scale()")
    case.equal(scaler.state_dict(), {}, "state_dict()")
    case.equal(scaler.load_state_dict({}), None, "result of load_state_dict")
