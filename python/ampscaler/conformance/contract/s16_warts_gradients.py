"""Section 16, the defects of torch's scaler that show in gradients, containers of losses and the two operators.

Whoever replaces the scaler should behave the same; each sentence says what happens and what would be right.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, process_group
from ampscaler.conformance.tools_texts import MODIFIED, NO_ROOM_FOR_ONE, NO_TENSORS, NOTHING_TO_STEP_BY, ONE_PLACE

Two = collections.namedtuple("Two", ["loss", "logits"])
One = collections.namedtuple("One", ["loss"])


@behaviour(
    "W5",
    "The check is made before the unscaling, so that a gradient that overflows by a scale below 1 is not seen and "
    "the step runs; the result should be checked as well",
)
def overflow_by_unscaling_is_not_seen(case: Case) -> None:
    for large, dtype in ((3e38, torch.float32), (1e308, torch.float64)):
        scaler, optimizer = case.ready_scaler(0.25), case.sgd(case.parameter([large], dtype))
        scaler.step(optimizer)
        case.equal(case.gradients(optimizer), [[INF]], f"{dtype} gradient at the scale 0.25")
        case.equal(case.values(optimizer), [[-INF]], f"{dtype} parameter, where 1 would be right")
        scaler.update()
        case.equal(scaler.get_scale(), 0.25, "scale after update(), where 0.125 would be right")
        case.equal(case.growth_tracker(scaler), 1, "growth tracker")
    gradient, flag = case.tensor([60000.0], torch.float16), case.tensor(0.0)
    case.operators.unscale([gradient], flag, case.tensor(4.0))
    case.equal(gradient, case.tensor([INF], torch.float16), "float16 gradient times 4")
    case.equal(flag, case.tensor(0.0), "flag for the float16 gradient, where 1 would be right")


@behaviour(
    "W7",
    "Where unscale_() fails on one gradient, those before it are unscaled already and once more by the next "
    "unscale_(); all should be checked before the first is written",
    proven_on=("cpu",),
)
def unscale_can_be_half_done(case: Case) -> None:
    good, bad = case.parameter([1.0]), case.parameter(case.tensor([1.0]).expand(3))
    scaler, optimizer = case.ready_scaler(4.0), case.sgd(good, bad)
    case.raises(RuntimeError, ONE_PLACE, scaler.unscale_, optimizer)
    case.equal(case.gradients(optimizer), [[0.25], [1.0, 1.0, 1.0]], "gradients after the failure")
    bad.grad = case.tensor([1.0, 1.0, 1.0])
    scaler.unscale_(optimizer)
    case.equal(
        case.gradients(optimizer), [[0.0625], [0.25, 0.25, 0.25]], "gradients, where 0.25 would be right for all"
    )


@behaviour(
    "W8",
    "A gradient whose rows overlap in memory is unscaled twice where they do, without an error; it should be "
    "refused as an expanded one is",
    proven_on=("cpu",),
)
def overlapping_elements_are_unscaled_repeatedly(case: Case) -> None:
    memory = case.tensor([1.0] * 8)
    scaler, optimizer = case.ready_scaler(4.0), case.sgd(case.parameter(memory.as_strided((3, 4), (2, 1))))
    scaler.unscale_(optimizer)
    expected = [0.25, 0.25, 0.0625, 0.0625, 0.0625, 0.0625, 0.25, 0.25]
    case.equal(memory.tolist(), expected, "memory of the gradient, where 0.25 would be right for all")


@behaviour(
    "W9",
    "A gradient that two parameters, two groups or two optimizers share is unscaled once for each; once would be right",
)
def shared_gradients_are_unscaled_repeatedly(case: Case) -> None:
    gradient = case.tensor([16.0])
    optimizers = [case.sgd(case.parameter(gradient)), case.sgd(case.parameter(gradient))]
    scaler = case.ready_scaler(4.0)
    scaler.unscale_(optimizers[0])
    case.equal(gradient, case.tensor([4.0]), "shared gradient after the first optimizer")
    scaler.unscale_(optimizers[1])
    case.equal(gradient, case.tensor([1.0]), "gradient shared by two optimizers, where 4 would be right")

    gradient = case.tensor([16.0])
    groups = [{"params": [case.parameter(gradient)]}, {"params": [case.parameter(gradient)]}]
    case.ready_scaler(4.0).unscale_(case.optimizer(torch.optim.SGD(groups, lr=1.0)))
    case.equal(gradient, case.tensor([1.0]), "gradient shared by two groups, where 4 would be right")

    gradient = case.tensor([16.0])
    case.ready_scaler(4.0).unscale_(case.sgd(case.parameter(gradient), case.parameter(gradient)))
    case.equal(gradient, case.tensor([1.0]), "gradient shared by two parameters, where 4 would be right")


@behaviour(
    "W11",
    "scale() fails on a namedtuple of two fields, puts an iterator into one of one field, and makes of a dict an "
    "iterator over its keys; they should come back with their tensors scaled",
)
def named_containers_are_mistreated(case: Case) -> None:
    scaler, loss = case.new_scaler(4.0), case.tensor(1.0)
    case.raises(TypeError, None, scaler.scale, Two(loss, loss))
    scaled = scaler.scale(One(loss))
    case.same(type(scaled), One, "type of the result for a namedtuple of one field")
    case.same(type(scaled.loss), map, "type of its field, where a tensor would be right")
    case.equal(list(scaled.loss), [case.tensor(4.0)], "what the iterator gives")
    case.same(type(scaler.scale({"loss": loss})), map, "type of the result for a dict, where a dict would be right")
    case.equal(list(scaler.scale({loss: 3.0})), [case.tensor(4.0)], "what the iterator gives where the key is a tensor")
    case.raises(ValueError, NO_TENSORS, list, scaler.scale({1: loss}))


@behaviour(
    "W21",
    "The backward of a loss that was scaled as a tensor fails after an update(), that of one scaled in a list does "
    "not; the first should use the scale that it was multiplied by, too",
)
def a_late_backward_fails_for_a_tensor_only(case: Case) -> None:
    def update(scaler: Any) -> None:
        scaler.step(case.sgd([INF]))
        scaler.update()
        case.equal(scaler.get_scale(), 2.0, "scale after the overflow")

    scaler, parameter = case.new_scaler(4.0), case.parameter(None)
    (loss,) = scaler.scale([parameter.sum()])
    update(scaler)
    loss.backward()
    case.equal(parameter.grad, case.tensor([4.0, 4.0]), "gradient of a loss that was scaled in a list")
    scaler, parameter = case.new_scaler(4.0), case.parameter(None)
    loss = scaler.scale(parameter.sum())
    update(scaler)
    case.raises(RuntimeError, MODIFIED, loss.backward)
    case.same(parameter.grad, None, "gradient of a loss that was scaled as a tensor")


def _adam(device: torch.device) -> Any:
    parameter = torch.nn.Parameter(torch.ones(1, device=device))
    parameter.grad = torch.full_like(parameter, 8.0)
    return torch.optim.Adam([parameter], 0.1, fused=True)


@behaviour(
    "W23",
    "torch.distributed.fsdp.ShardedGradScaler on a CPU lets the scale grow to inf, breaks a fused Adam after "
    "unscale_() when its parameters have moved already, and steps without gradients; it should do as the scaler "
    "that it derives from",
)
def the_sharded_scaler_has_its_own_defects(case: Case) -> None:
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler  # slow, and most runs can do without

    def scalers(init_scale: float, group: Any) -> Iterator[tuple[Any, torch.device, bool]]:
        yield case.new_scaler(init_scale, growth_interval=1), case.device, False
        options = {"device": "cpu", "growth_interval": 1, "process_group": group}
        yield case.new_scaler(init_scale, of=ShardedGradScaler, **options), torch.device("cpu"), True

    with process_group() as group:
        for scaler, device, sharded in scalers(3e38, group):
            scaler.scale(torch.ones((), device=device))
            parameter = torch.nn.Parameter(torch.ones(1, device=device))
            parameter.grad = torch.zeros_like(parameter)
            scaler.step(case.sgd(parameter))
            scaler.update()
            case.equal(scaler.get_scale(), INF if sharded else 3.0000000054977558e38, "scale 3e38 after a growth")
        for scaler, device, sharded in scalers(4.0, group):
            scaler.scale(torch.ones((), device=device))
            optimizer = case.optimizer(_adam(device))
            scaler.unscale_(optimizer)
            if sharded:
                case.raises(RuntimeError, NO_ROOM_FOR_ONE, scaler.step, optimizer)
            else:
                scaler.step(optimizer)
            case.equal(round(case.values(optimizer)[0][0], 4), 0.9, "parameter after unscale_() and step()")
        for scaler, device, sharded in scalers(4.0, group):
            scaler.scale(torch.ones((), device=device))
            optimizer = case.sgd(torch.nn.Parameter(torch.ones(1, device=device)))
            if sharded:
                scaler.step(optimizer)
                scaler.update()
            else:
                case.raises(AssertionError, NOTHING_TO_STEP_BY, scaler.step, optimizer)


@behaviour(
    "W24",
    "One argument on meta turns a whole call of torch's unscale operator into nothing, without an error; it should "
    "be refused. Another operator may refuse it, but must not write either",
    operators=True,
    proven_on=("cpu",),
)
def one_meta_argument_makes_a_no_op(case: Case) -> None:
    meta = torch.ones((), device="meta")
    for position in range(3):
        gradient, flag, inverse = case.tensor([INF, 4.0]), case.tensor(0.0), case.tensor(0.25)
        arguments: list[Any] = [[gradient], flag, inverse]
        arguments[position] = [gradient, meta] if position == 0 else meta
        if case.operators.is_aten:
            case.operators.unscale(*arguments)
        else:
            with contextlib.suppress(RuntimeError):
                case.operators.unscale(*arguments)
        case.equal(gradient, case.tensor([INF, 4.0]), "gradient")
        case.equal(flag, case.tensor(0.0), "flag, where 1 would be right")


@behaviour(
    "W25",
    "The .out overloads of torch's two operators write their result but neither found_inf nor growth_tracker; they "
    "should write both",
)
def out_overloads_lose_the_flag_and_the_tracker(case: Case) -> None:
    gradient, flag, out = case.tensor([INF, 4.0]), case.tensor(0.0), case.tensor([0.0, 0.0])
    unscale: Any = torch.ops.aten._amp_foreach_non_finite_check_and_unscale
    unscale.out([gradient], flag, case.tensor(0.25), out=[out])
    case.equal(out, case.tensor([INF, 1.0]), "out of the unscale operator")
    case.equal(gradient, case.tensor([INF, 4.0]), "gradient")
    case.equal(flag, case.tensor(0.0), "found_inf, where 1 would be right")
    _, flag = unscale.default([gradient], flag, case.tensor(0.25))
    case.equal(flag, case.tensor(1.0), "found_inf returned by the functional overload")
    update: Any = torch.ops.aten._amp_update_scale
    for interval, scale in ((1, 8.0), (2, 4.0)):
        arguments = (case.tensor(4.0), case.tensor(0, torch.int32), case.tensor(0.0), 2.0, 0.5, interval)
        result = case.tensor(0.0)
        update.out(*arguments, out=result)
        case.equal(result, case.tensor(scale), "out of the update operator")
        case.equal(
            arguments[1], case.tensor(0, torch.int32), "growth_tracker, where 1 would be right for the interval 2"
        )
    _, tracker = update.default(*arguments)
    case.equal(tracker, case.tensor(1, torch.int32), "growth tracker returned by the functional overload")
