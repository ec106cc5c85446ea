"""Section 3: when and where the scale and the growth tracker come into being."""

from __future__ import annotations

from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools_texts import INFERENCE, TOO_LARGE, TRACKER_BEFORE_SCALE


@behaviour(
    "S3.1",
    "_lazy_init_scale_growth_tracker(device) makes _scale a 0-dim float32 and _growth_tracker a 0-dim int32 tensor "
    "on the device, whatever torch's default dtype and device; it raises if the tracker exists already",
    private=True,
)
def lazy_init_makes_two_scalars(case: Case) -> None:
    torch.set_default_dtype(torch.float64)  # has no influence
    for device in (case.device, str(case.device)):
        scaler = case.new_scaler(4.0)
        scaler._init_growth_tracker = 3
        with torch.device("meta"):  # nor has the default device
            scaler._lazy_init_scale_growth_tracker(device)
        case.equal(scaler._scale, case.tensor(4.0), "_scale")
        case.equal(scaler._growth_tracker, case.tensor(3, torch.int32), "_growth_tracker")
    scaler = case.new_scaler(4.0)
    scaler._growth_tracker = case.tensor(0, torch.int32)
    case.raises(AssertionError, TRACKER_BEFORE_SCALE, scaler._lazy_init_scale_growth_tracker, case.device)


@behaviour(
    "S3.2",
    "The first scale() makes the scale, on the device of the first tensor that it visits, never on that of the "
    "constructor",
)
def the_first_loss_decides_the_device(case: Case) -> None:
    scaler = case.new_scaler(4.0, device=case.device)
    result = scaler.scale(case.tensor(1.0))
    case.equal(result, case.tensor(4.0), "scaled loss")
    meta = torch.ones((), device="meta")
    for outputs in ([case.tensor(1.0), meta], [[case.tensor(1.0)], (meta,)]):
        scaler = case.new_scaler(4.0)
        scaler.scale(outputs)
        case.equal(scaler.get_scale(), 4.0, "scale where a loss on meta is the second")
    lists: list[Any] = [meta, [meta], ([], [meta])]
    for outputs in lists:
        scaler = case.new_scaler(4.0)
        scaler.scale(outputs)  # no value can be read of a scale on meta
        case.raises(RuntimeError, "Tensor.item() cannot be called on meta tensors", scaler.get_scale)
    if case.private:
        scaler = case.new_scaler(4.0, device="cuda:0")
        scaler.scale(torch.ones(()))
        case.equal(scaler._scale, torch.tensor(4.0), "_scale of a CPU loss")
        scaler = case.new_scaler(4.0)
        scaler.scale([meta])
        case.equal(
            [scaler._scale.device.type, scaler._growth_tracker.device.type], ["meta"] * 2, "devices of a meta loss"
        )


@behaviour(
    "S3.3",
    "_init_scale and _init_growth_tracker are read at the first scale(), so that they may be assigned before it",
    private=True,
)
def start_values_are_read_late(case: Case) -> None:
    scaler = case.new_scaler(4.0)
    scaler._init_scale = 32
    scaler._init_growth_tracker = 7
    case.equal(scaler.scale(case.tensor(1.0)), case.tensor(32.0))
    case.equal(scaler._get_growth_tracker(), 7, "growth tracker")


@behaviour(
    "S3.4",
    "A second _lazy_init_scale_growth_tracker raises, and so does scale() once _scale alone is set to None; with "
    "both _scale and _growth_tracker set to None scale() initialises anew",
    private=True,
)
def lazy_init_happens_once(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    case.raises(AssertionError, TRACKER_BEFORE_SCALE, scaler._lazy_init_scale_growth_tracker, case.device)
    scaler._scale = None
    case.raises(AssertionError, TRACKER_BEFORE_SCALE, scaler.scale, case.tensor(1.0))
    scaler._growth_tracker = None
    scaler._init_scale = 8.0
    case.equal(scaler.scale(case.tensor(1.0)), case.tensor(8.0))


@behaviour(
    "S3.5",
    "A start scale that does not fit raises at the first scale(): a str TypeError, 1e39 RuntimeError, an int beyond "
    "int64 OverflowError; 1e-46 becomes 0, a 0-dim tensor is taken",
)
def unfit_values_show_up_late(case: Case) -> None:
    loss = case.tensor(1.0)
    case.raises(RuntimeError, TOO_LARGE, case.new_scaler(1e39).scale, loss)
    case.raises(TypeError, None, case.new_scaler("4").scale, loss)
    case.raises(OverflowError, None, case.new_scaler(10**30).scale, loss)
    case.equal(case.new_scaler(1e-46).scale(loss), case.tensor(0.0), "loss at scale 1e-46")
    case.equal(case.new_scaler(torch.tensor(4.0)).scale(loss), case.tensor(4.0), "loss at a scale given as a tensor")


@behaviour(
    "S3.6",
    "A first scale() in inference mode makes the scale an inference tensor, on which update() outside raises "
    "RuntimeError; a whole iteration inside works",
)
def inference_mode_sticks(case: Case) -> None:
    optimizer, overflowed = case.sgd([4.0]), case.sgd([float("inf")])
    with torch.inference_mode():
        scaler = case.ready_scaler(4.0)
        scaler.step(optimizer)
        scaler.update()
        case.equal(scaler.get_scale(), 4.0, "scale after a clean update inside")
        scaler.step(overflowed)
        scaler.update()
    case.equal(case.values(optimizer), [[0.0]], "parameters after a step inside")
    case.equal(scaler.get_scale(), 2.0, "scale after an overflow inside")
    optimizer = case.sgd([float("inf")])
    scaler.step(optimizer)
    case.raises(RuntimeError, INFERENCE, scaler.update)
