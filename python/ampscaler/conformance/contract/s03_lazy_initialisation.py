"""Section 3: when and where the scale and the growth tracker come into being."""

from __future__ import annotations

import re

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour


@behaviour("S3.1", "_lazy_init_scale_growth_tracker makes a 0-dim float32 and a 0-dim int32 tensor", private=True)
def lazy_init_makes_two_scalars(case: Case) -> None:
    torch.set_default_dtype(torch.float64)  # has no influence
    for device in (case.device, str(case.device)):
        scaler = case.new_scaler(4.0)
        scaler._init_growth_tracker = 3
        scaler._lazy_init_scale_growth_tracker(device)
        case.equal(scaler._scale, case.tensor(4.0), "_scale")
        case.equal(scaler._growth_tracker, case.tensor(3, torch.int32), "_growth_tracker")
    scaler = case.new_scaler(4.0)
    scaler._growth_tracker = case.tensor(0, torch.int32)
    text = "_growth_tracker initialized before _scale"
    case.raises(AssertionError, text, scaler._lazy_init_scale_growth_tracker, case.device)


@behaviour("S3.2", "The scale lives on the device of the first tensor that scale() visits, not of the constructor")
def the_first_loss_decides_the_device(case: Case) -> None:
    scaler = case.new_scaler(4.0, device=case.device)
    result = scaler.scale(case.tensor(1.0))
    case.equal(result, case.tensor(4.0), "scaled loss")
    if case.private:
        scaler = case.new_scaler(4.0, device="cuda:0")
        scaler.scale(torch.ones(()))
        case.equal(scaler._scale, torch.tensor(4.0), "_scale of a CPU loss")
        scaler = case.new_scaler(4.0)
        scaler.scale([torch.ones((), device="meta")])
        case.equal(scaler._scale.device.type, "meta", "device of the scale of a meta loss")


@behaviour("S3.3", "Both start values are read at that moment, so they may be assigned before it", private=True)
def start_values_are_read_late(case: Case) -> None:
    scaler = case.new_scaler(4.0)
    scaler._init_scale = 32
    scaler._init_growth_tracker = 7
    case.equal(scaler.scale(case.tensor(1.0)), case.tensor(32.0))
    case.equal(scaler._get_growth_tracker(), 7, "growth tracker")


@behaviour("S3.4", "A second direct call raises; setting both tensors to None initialises anew", private=True)
def lazy_init_happens_once(case: Case) -> None:
    text = "_growth_tracker initialized before _scale"
    scaler = case.ready_scaler(4.0)
    case.raises(AssertionError, text, scaler._lazy_init_scale_growth_tracker, case.device)
    scaler._scale = None
    case.raises(AssertionError, text, scaler.scale, case.tensor(1.0))
    scaler._growth_tracker = None
    scaler._init_scale = 8.0
    case.equal(scaler.scale(case.tensor(1.0)), case.tensor(8.0))


@behaviour("S3.5", "A start value that does not fit shows up at the first scale()")
def unfit_values_show_up_late(case: Case) -> None:
    loss = case.tensor(1.0)
    overflow = "value cannot be converted to type float without overflow"
    case.raises(RuntimeError, overflow, case.new_scaler(1e39).scale, loss)
    case.raises(TypeError, None, case.new_scaler("4").scale, loss)
    case.raises(OverflowError, None, case.new_scaler(10**30).scale, loss)
    case.equal(case.new_scaler(1e-46).scale(loss), case.tensor(0.0), "loss at scale 1e-46")
    case.equal(case.new_scaler(torch.tensor(4.0)).scale(loss), case.tensor(4.0), "loss at a scale given as a tensor")


@behaviour("S3.6", "A first scale() in inference mode makes an inference tensor, which update() outside refuses")
def inference_mode_sticks(case: Case) -> None:
    optimizer = case.sgd([4.0])
    with torch.inference_mode():
        scaler = case.ready_scaler(4.0)
        scaler.step(optimizer)
        scaler.update()
    case.equal(scaler.get_scale(), 4.0, "scale after an update inside")
    optimizer = case.sgd([float("inf")])
    scaler.step(optimizer)
    text = re.compile(r"^Inplace update to inference tensor outside InferenceMode is not allowed")
    case.raises(RuntimeError, text, scaler.update)
