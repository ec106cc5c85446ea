"""Section 5: the order of unscale_(), its reciprocal, its flag, its record; what a failure leaves behind."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, HostReads, inverse, spy, to_float32, waiting_is_an_error
from ampscaler.conformance.tools_texts import FLOAT16, UNSCALED_LATE, UNSCALED_TWICE, never_scaled

SCALES = (65536.0, 3000.0, 3.0, 1.0, 0.1, 1e-30, 7e37, 3e38)


class Bag:
    """An optimizer that is no more than its groups."""

    def __init__(self, *groups: Any) -> None:
        self.param_groups = [{"params": group} for group in groups]


@behaviour(
    "S5.1",
    "unscale_() returns None if disabled, else raises AssertionError if scale() was never called, RuntimeError if "
    "the optimizer is UNSCALED and another one if it is STEPPED; stages are compared by identity, so that any other "
    "value goes on",
)
def the_order_of_unscale(case: Case) -> None:
    disabled = case.new_scaler(4.0, enabled=False)
    optimizer = case.sgd([8.0])
    for _ in range(2):
        case.equal(disabled.unscale_(optimizer), None, "unscale_ when disabled")
    case.equal(disabled.unscale_(object()), None, "unscale_ of anything when disabled")
    case.equal(case.gradients(optimizer), [[8.0]], "gradients")
    scaler = case.new_scaler(4.0)
    case.raises(AssertionError, never_scaled("unscale_"), scaler.unscale_, optimizer)
    case.raises(AssertionError, never_scaled("unscale_"), scaler.unscale_, case.optimizer(Bag([5])))
    if case.private:
        case.equal(len(scaler._per_optimizer_states), 0, "number of entries after unscale_ before scale()")
    case.equal(case.gradients(optimizer), [[8.0]], "gradients after unscale_ before scale()")
    scaler.scale(case.tensor(1.0))
    scaler.unscale_(optimizer)
    case.raises(RuntimeError, UNSCALED_TWICE, scaler.unscale_, optimizer)
    case.equal(case.gradients(optimizer), [[2.0]], "gradients after the second call")
    scaler.step(optimizer)
    case.raises(RuntimeError, UNSCALED_LATE, scaler.unscale_, optimizer)
    another = case.sgd([8.0])
    scaler.step(another)
    case.raises(RuntimeError, UNSCALED_LATE, scaler.unscale_, another)
    scaler.update()
    scaler.unscale_(optimizer)
    case.equal(case.gradients(optimizer), [[0.5]], "gradients after the next iteration's unscale_")
    if case.private:
        _foreign_stages_go_on(case)
    bag = case.optimizer(Bag([case.parameter([8.0])]))
    scaler.unscale_(bag)
    bag.param_groups[0]["params"].append(5)
    case.raises(RuntimeError, UNSCALED_TWICE, scaler.unscale_, bag)


def _foreign_stages_go_on(case: Case) -> None:
    for stage in (1, 2, None, "UNSCALED", mock.ANY):  # the last is equal to everything
        scaler, optimizer = case.ready_scaler(4.0), case.sgd([8.0])
        scaler._per_optimizer_states[id(optimizer)]["stage"] = stage
        scaler.unscale_(optimizer)
        case.equal(case.gradients(optimizer), [[2.0]], f"gradients at stage {stage!r}")
        case.equal(case.stage(scaler, optimizer), "UNSCALED", "stage afterwards")


@behaviour(
    "S5.2",
    "unscale_() multiplies the gradients by the reciprocal of the scale, formed in float64 and rounded once to float32",
)
def the_reciprocal_is_rounded_once(case: Case) -> None:
    values = [to_float32(value) for value in torch.randn(300, dtype=torch.float64).tolist()]
    for scale in SCALES:
        scaler, optimizer = case.ready_scaler(scale), case.sgd([1.0])
        scaler.unscale_(optimizer)
        case.equal(case.parameters(optimizer)[0].grad, case.tensor([inverse(scale)]), f"1 unscaled at {scale}")
    products = [to_float32(value * inverse(3000.0)) for value in values]
    quotients = [to_float32(value / 3000.0) for value in values]
    case.true(products != quotients, "a division by the scale would be seen")
    scaler, optimizer = case.ready_scaler(3000.0), case.sgd(values)
    scaler.unscale_(optimizer)
    case.equal(case.parameters(optimizer)[0].grad, case.tensor(products), "values unscaled at 3000")
    optimizer = case.sgd(case.tensor([1.0, 3.0], torch.float64))
    scaler.unscale_(optimizer)
    doubles = case.tensor([inverse(3000.0), 3.0 * inverse(3000.0)], torch.float64)
    case.equal(case.parameters(optimizer)[0].grad, doubles, "float64 gradients, by the float32 reciprocal")
    if case.private:
        for scale in SCALES:
            scaler = case.ready_scaler(scale)
            calls = spy(scaler, "_unscale_grads_")
            scaler.unscale_(case.sgd([1.0]))
            case.equal(calls[0][1], case.tensor(inverse(scale)), "inv_scale")


@behaviour(
    "U5.1",
    "On mps unscale_() forms the reciprocal of the scale in float32",
    proven_on=(),
    only_on="mps",
)
def mps_takes_a_float32_reciprocal(case: Case) -> None:
    for scale in SCALES:
        scaler, optimizer = case.ready_scaler(scale), case.sgd([1.0])
        scaler.unscale_(optimizer)
        case.equal(case.parameters(optimizer)[0].grad, case.tensor([scale]).reciprocal(), f"1 unscaled at {scale}")


@behaviour(
    "S5.3",
    "Every unscale_() starts from a new flag, a 0-dim float32 zero on the scale's device, so that an overflow of "
    "one optimizer is not that of another",
)
def every_call_has_a_new_flag(case: Case) -> None:
    scaler, bad, good = case.ready_scaler(4.0), case.sgd([INF]), case.sgd([4.0])
    scaler.unscale_(bad)
    scaler.unscale_(good)
    scaler.step(good)
    scaler.step(bad)
    case.equal(case.values(good), [[0.0]], "parameters of the clean optimizer")
    case.equal(case.values(bad), [[1.0]], "parameters of the optimizer with inf")
    scaler.update()
    scaler.step(good)
    case.equal(case.values(good), [[-0.5]], "parameters after a clean iteration at scale 2")
    if case.private:
        scaler = case.ready_scaler(4.0)
        calls = spy(scaler, "_unscale_grads_")
        for optimizer in (case.sgd([INF]), case.sgd([4.0])):
            scaler.unscale_(optimizer)
            case.equal(calls[-1][2], case.tensor(0.0), "found_inf handed to _unscale_grads_")
        case.true(calls[0][2].data_ptr() != calls[1][2].data_ptr(), "each call has a found_inf of its own")
        scaler._scale = scaler._scale.to("meta")
        scaler.unscale_(case.sgd(None))
        case.equal([value.device.type for value in calls[-1][1:3]], ["meta"] * 2, "devices at a scale on meta")


@behaviour(
    "S5.4",
    "unscale_() stores the flags that it found and then marks the optimizer UNSCALED; it gets them from the private "
    "self._unscale_grads_(optimizer, inv_scale, found_inf, False), by position and whatever has overridden it",
)
def the_record_is_what_unscale_grads_returns(case: Case) -> None:
    scaler, optimizer = case.ready_scaler(4.0), case.sgd([8.0])
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    case.equal(case.gradients(optimizer), [[2.0]], "gradients: step() does not unscale again")
    case.equal(case.values(optimizer), [[-1.0]], "parameters")
    if not case.private:
        return
    record = {case.device: case.tensor(0.0)}
    seen: list[Any] = []

    class Overriding(case.scaler_class):  # type: ignore[misc, name-defined]
        def _unscale_grads_(self, *args: Any) -> Any:
            seen.append((args, self._per_optimizer_states[id(args[0])]["stage"].name))
            return record

    def patched(*args: Any) -> Any:
        seen.append((args, scaler._per_optimizer_states[id(args[0])]["stage"].name))
        return record

    scaler = case.ready_scaler(4.0)
    scaler._unscale_grads_ = patched
    for tested in (scaler, case.ready_scaler(4.0, of=Overriding)):
        optimizer = case.sgd([8.0])
        tested.unscale_(optimizer)
        arguments, stage = seen.pop()
        case.equal(arguments, (optimizer, case.tensor(0.25), case.tensor(0.0), False), "arguments")
        case.equal(stage, "READY", "stage during the call")
        case.same(tested._per_optimizer_states[id(optimizer)]["found_inf_per_device"], record, "stored record")
        case.equal(case.stage(tested, optimizer), "UNSCALED", "stage after the call")
        case.equal(case.gradients(optimizer), [[8.0]], "gradients, which the override leaves alone")
        tested.step(optimizer)
        case.equal(seen, [], "further calls from step()")
        case.equal(case.values(optimizer), [[-7.0]], "parameters: the returned record decides")


@behaviour(
    "S5.5",
    "unscale_() returns None and reads nothing back to the host, so that it works on tensors without data",
)
def nothing_is_read_back(case: Case) -> None:
    scaler, optimizer = case.ready_scaler(4.0), case.sgd([8.0, INF], [1.0])
    with waiting_is_an_error(case.device):
        result = scaler.unscale_(optimizer)
    case.equal(result, None, "value of unscale_")
    counted, optimizer = case.raw(case.ready_scaler(4.0)), case.sgd([8.0, INF], [1.0])
    with HostReads() as reads:
        counted.unscale_(optimizer)
    case.equal(reads.count, 0, "host reads of unscale_")
    scaler = case.new_scaler(4.0)
    scaler.scale(torch.ones((), device="meta"))
    parameters = [
        torch.nn.Parameter(torch.ones(2, dtype=dtype, device="meta")) for dtype in (torch.float32, torch.float64)
    ]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    case.equal(scaler.unscale_(case.sgd(*parameters)), None, "value of unscale_ on tensors without data")


@behaviour(
    "S5.6",
    "An error in unscale_() leaves an entry with the stage READY and the record as it was; gradients that were done "
    "stay unscaled, and a retry unscales them twice",
)
def an_error_may_be_retried(case: Case) -> None:
    bad_ones = (case.tensor([1.0], torch.complex64), case.tensor([1.0], torch.float16))
    kinds = ((NotImplementedError, None), (ValueError, FLOAT16))
    for bad, (kind, text) in zip(bad_ones, kinds, strict=True):
        scaler, optimizer = case.ready_scaler(4.0), case.sgd([8.0], bad)
        if case.private:
            case.equal(id(optimizer) in scaler._per_optimizer_states, False, "an entry before the call")
        case.raises(kind, text, scaler.unscale_, optimizer)
        if case.private:
            case.equal(id(optimizer) in scaler._per_optimizer_states, True, "an entry after the error")
            case.equal(case.stage(scaler, optimizer), "READY", "stage after the error")
            case.equal(
                scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"], {}, "record after the error"
            )
    scaler, optimizer = case.ready_scaler(4.0), case.sgd([8.0], case.tensor([1.0], torch.complex64))
    record: dict[Any, Any] = {}
    if case.private:
        scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = record
    case.raises(NotImplementedError, None, scaler.unscale_, optimizer)
    if case.private:
        case.same(scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"], record, "record after the error")
    between = case.gradients(optimizer)[0]
    case.parameters(optimizer)[1].grad = None
    scaler.unscale_(optimizer)
    case.raises(RuntimeError, UNSCALED_TWICE, scaler.unscale_, optimizer)
    case.equal(between, [2.0], "gradient of the first parameter after the error")
    case.equal(case.gradients(optimizer), [[0.5], None], "gradients after the retry")


@behaviour(
    "S5.7",
    "unscale_() raises no flag at an odd scale: 0, or one below about 2.9e-39, gives inf and NaN, inf gives 0, NaN "
    "gives NaN, a negative one flips signs",
)
def degenerate_scales_are_not_flagged(case: Case) -> None:
    nan = math.nan
    expected = {
        0.0: [INF, nan, -INF],
        1e-46: [INF, nan, -INF],  # 0 as a float32
        2.9e-39: [INF, nan, -INF],
        2.95e-39: [to_float32(1 / to_float32(2.95e-39)), 0.0, -to_float32(1 / to_float32(2.95e-39))],
        INF: [0.0, 0.0, -0.0],
        -INF: [-0.0, -0.0, 0.0],
        -4.0: [-0.25, -0.0, 0.25],
        nan: [nan, nan, nan],
    }
    for scale, gradients in expected.items():
        scaler, optimizer = case.ready_scaler(4.0), case.sgd([1.0, 0.0, -1.0])
        scaler.update(scale)
        scaler.unscale_(optimizer)
        case.equal(case.parameters(optimizer)[0].grad, case.tensor(gradients), f"1, 0 and -1 unscaled at {scale}")
        if case.private:
            record = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
            case.equal([flag.item() for flag in record.values()], [0.0], f"flags at scale {scale}")
        scaler.step(optimizer)
        stepped = [1.0 - gradient for gradient in gradients]
        case.equal(
            case.parameters(optimizer)[0].detach(), case.tensor(stepped), f"parameters: the step runs at scale {scale}"
        )
