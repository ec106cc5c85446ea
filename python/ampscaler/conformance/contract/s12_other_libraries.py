"""Section 12: what other libraries do with a scaler, each row as the few lines of client code that it comes down to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.amp.grad_scaler import OptState

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, attribute_optimizer
from ampscaler.conformance.tools_texts import FLOAT16


class SkipDetector:
    """Replaces an optimizer's step by one that notes that it ran; accelerate learns in this way of a skipped step."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self.original = optimizer, optimizer.step
        self.calls: list[Any] = []

    def _patched(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        return self.original(*args, **kwargs)

    def step(self, scaler: Any, closure: Any = None) -> bool:
        """One iteration with the scaler; True if the step was skipped."""
        before = len(self.calls)
        self.optimizer.step = self._patched
        scaler.step(self.optimizer, closure)
        scaler.update()
        self.optimizer.step = self.original
        return len(self.calls) == before


@behaviour(
    "S12.1",
    "accelerate: step() runs the step that was assigned to the optimizer and passes on a positional None; a lower "
    "get_scale() after update() tells of a skip; the private _lazy_init_scale_growth_tracker takes the device as a "
    "string",
)
def accelerate_detects_skips(case: Case) -> None:
    scaler = case.ready_scaler(4.0, growth_interval=2)
    for gradient, skipped, parameter in ((8.0, False, -1.0), (INF, True, 1.0), (8.0, False, -3.0)):
        optimizer = case.sgd([gradient])
        detector = SkipDetector(optimizer)
        scale_before = scaler.get_scale()
        case.equal(detector.step(scaler), skipped, "skipped, by the calls of the patched step")
        case.equal(scaler.get_scale() < scale_before, skipped, "skipped, by the scale")
        case.equal(detector.calls, [] if skipped else [((None,), {})], "calls of the patched step")
        case.equal(case.values(optimizer), [[parameter]], "parameters")
    if case.private:
        state = scaler.state_dict()
        loaded = case.new_scaler(16.0, growth_interval=7)
        loaded.load_state_dict(state)
        loaded._lazy_init_scale_growth_tracker(loaded._device)  # a string
        optimizer = case.sgd([8.0])
        case.equal(SkipDetector(optimizer).step(loaded), False, "skipped after a load, without any call of scale()")
        case.equal(case.values(optimizer), [[-3.0]], "parameters after a load")
        case.equal(loaded.get_scale(), 4.0, "scale after the load and a second clean step")


@behaviour(
    "S12.2",
    "Full-float16 trainers: unscale_() calls an _unscale_grads_ that was put on the instance with four positional "
    "arguments, and the original unscales float16 gradients where the last is True",
    private=True,
)
def full_float16_trainers_allow_float16(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd(case.parameter([8.0], torch.float16))
    case.raises(ValueError, FLOAT16, scaler.unscale_, optimizer)
    original = case.raw(scaler)._unscale_grads_
    calls: list[Any] = []

    def allowing(*args: Any, **kwargs: Any) -> Any:
        calls.append((args, kwargs))
        return _allowing_float16(original, *args, **kwargs)

    scaler._unscale_grads_ = allowing
    scaler.unscale_(optimizer)
    case.equal(len(calls), 1, "calls of the replacement")
    args, kwargs = calls[0]
    case.same(args[0], optimizer, "first argument")
    case.equal((args[1:], kwargs), ((case.tensor(0.25), case.tensor(0.0), False), {}), "other arguments")
    case.equal(case.parameters(optimizer)[0].grad, case.tensor([2.0], torch.float16), "gradient")
    scaler.step(optimizer)
    scaler.update()
    case.equal(case.values(optimizer), [[-1.0]], "parameters")
    optimizer = case.sgd(case.parameter([INF], torch.float16))
    scaler.step(optimizer)
    scaler.update()
    case.equal((case.values(optimizer), scaler.get_scale()), ([[1.0]], 2.0), "parameters and scale after an overflow")


def _allowing_float16(original: Any, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: Any) -> Any:
    return original(optimizer, inv_scale, found_inf, True)


def _lightning_step(scaler: Any, optimizer: Any, max_norm: float, stages: list[str], **kwargs: Any) -> Any:
    """The optimizer's value. `stages` gets the name of the stage after each call, as Lightning's tests read it."""

    def note() -> None:
        if hasattr(scaler, "_per_optimizer_states"):
            stages.append(scaler._per_optimizer_states[id(optimizer)]["stage"].name)

    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        scaler.unscale_(optimizer)
        note()
        torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], max_norm)
    value = scaler.step(optimizer, **kwargs)
    note()
    scaler.update()
    return value


@behaviour(
    "S12.3",
    "Lightning: unscale_(), clipping, step() with keywords, update(), without the first two for optimizers that "
    "handle the scale; the stage in an optimizer's private entry is an OptState with a name",
)
def lightning_clips_between_unscale_and_step(case: Case) -> None:
    scaler = case.ready_scaler(4.0, growth_interval=3)
    stages: list[str] = []
    optimizer = case.sgd([24.0, 32.0])
    original = optimizer.step
    calls: list[Any] = []

    def noting(*args: Any, **kwargs: Any) -> str:
        calls.append((args, kwargs))
        original()
        return "value"

    optimizer.step = noting
    case.equal(case.returned(_lightning_step(scaler, optimizer, 20.0, stages, note=1)), "value", "value of the step")
    case.equal(calls, [((), {"note": 1})], "calls of the optimizer")
    case.equal(case.values(optimizer), [[-5.0, -7.0]], "parameters where the norm, 10, is below the limit")
    optimizer = case.sgd([24.0, 32.0])
    _lightning_step(scaler, optimizer, 5.0, stages)
    norm = sum(value**2 for value in case.gradients(optimizer)[0]) ** 0.5
    case.true(abs(norm - 5.0) < 1e-4, f"the clipped gradient, divided by the scale, has the norm 5 (it is {norm})")
    optimizer = attribute_optimizer(case, [24.0, 32.0])
    _lightning_step(scaler, optimizer, 5.0, stages, note=1)
    case.equal(optimizer.handed[0].gradients, [case.tensor([24.0, 32.0])], "gradients of one that handles the scale")
    case.equal(optimizer.handed[0].kwargs, {"note": 1}, "keywords of one that handles the scale")
    names = ["scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"]
    case.equal(scaler.state_dict(), dict(zip(names, (8.0, 2.0, 0.5, 3, 0), strict=True)), "state_dict")
    if case.private:
        case.equal(stages, ["UNSCALED", "STEPPED", "UNSCALED", "STEPPED", "STEPPED"], "names of the stages")
        scaler.unscale_(optimizer)
        case.same(scaler._per_optimizer_states[id(optimizer)]["stage"], OptState.UNSCALED, "stage")


class ScalerReadingOptimizer:
    """Takes flag and scale from the scaler in its step; apex FusedAdam, LAMB and Transformer Engine do it so."""

    _step_supports_amp_scaling = True

    def __init__(self, parameter: torch.nn.Parameter) -> None:
        self.param_groups: list[Any] = [{"params": [parameter]}]
        self.read: list[Any] = []

    def step(self, closure: Any = None, grad_scaler: Any = None) -> None:
        """Plain SGD, skipped on the scaler's word."""
        (parameter,) = self.param_groups[0]["params"]
        found_inf = grad_scaler._check_inf_per_device(self)[parameter.grad.device]
        inverse = grad_scaler._get_scale_async().double().reciprocal().float()
        self.read.append((found_inf.clone(), inverse, list(grad_scaler._found_inf_per_device(self))))
        if not found_inf.item():
            with torch.no_grad():
                parameter -= parameter.grad * inverse


@behaviour(
    "S12.4",
    "apex and Transformer Engine: in a step with the keyword grad_scaler _check_inf_per_device(self) is a dict of "
    "torch.device to flag and _get_scale_async() a 0-dim float tensor",
    private=True,
)
def apex_takes_flag_and_scale_from_the_scaler(case: Case) -> None:
    for gradient, flag, parameter, scale in ((8.0, 0.0, -1.0, 4.0), (INF, 1.0, 1.0, 2.0)):
        scaler = case.ready_scaler(4.0)
        optimizer = case.optimizer(ScalerReadingOptimizer(case.parameter([gradient])))
        scaler.step(optimizer)
        scaler.update()
        device = case.parameters(optimizer)[0].device
        case.equal(
            optimizer.read, [(case.tensor(flag), case.tensor(0.25), [device])], "flag, 1 / scale and keys of the flags"
        )
        case.equal(case.gradients(optimizer), [[gradient]], "gradients, which are only checked")
        case.equal(case.values(optimizer), [[parameter]], "parameters")
        case.equal(scaler.get_scale(), scale, "scale after the update")
        case.equal(scaler._get_growth_tracker(), 0 if flag else 1, "growth tracker after the update")


class FlagWritingOptimizer:
    """Checks its gradients itself and writes the flag into the scaler; apex DistributedFusedAdam does it so."""

    _step_supports_amp_scaling = True

    def __init__(self, parameter: torch.nn.Parameter, flag_shape: Sequence[int]) -> None:
        self.param_groups: list[Any] = [{"params": [parameter]}]
        self.flag_shape = flag_shape
        self.stages: list[Any] = []

    def step(self, closure: Any = None, *, grad_scaler: Any = None) -> None:
        """Plain SGD, skipped if the gradient holds inf or NaN."""
        (parameter,) = self.param_groups[0]["params"]
        state = grad_scaler._per_optimizer_states[id(self)]
        self.stages.append(state["stage"])
        scale = grad_scaler._scale.view([]) if state["stage"] is OptState.READY else torch.ones_like(grad_scaler._scale)
        found_inf = torch.logical_not(torch.isfinite(parameter.grad.sum())).float().view(self.flag_shape)
        state["found_inf_per_device"] = {found_inf.device: found_inf}
        if not found_inf.item():
            with torch.no_grad():
                parameter -= parameter.grad / scale


@behaviour(
    "S12.5",
    "apex DistributedFusedAdam: in its step the optimizer reads its stage and _scale.view([]), and writes flags of "
    "its own, of shape () or (1,), into its entry, by which update() goes",
    private=True,
)
def apex_writes_its_own_flags(case: Case) -> None:
    for shape in ((), (1,)):
        for explicit in (False, True):
            for gradient, parameter, scale in ((8.0, -1.0, 4.0), (INF, 1.0, 2.0)):
                scaler = case.ready_scaler(4.0)
                optimizer = case.optimizer(FlagWritingOptimizer(case.parameter([gradient]), shape))
                if explicit:
                    scaler.unscale_(optimizer)
                scaler.step(optimizer)
                case.same(
                    optimizer.stages[0], OptState.UNSCALED if explicit else OptState.READY, "stage during the step"
                )
                case.equal(case.stage(scaler, optimizer), "STEPPED", "stage afterwards")
                scaler.update()
                case.equal(case.values(optimizer), [[parameter]], "parameters")
                case.equal(scaler.get_scale(), scale, f"scale after an update by a flag of shape {shape}")


@behaviour(
    "S12.6",
    "SAM trainers: a stage set to the int 2 is neither READY, UNSCALED nor STEPPED, and update() goes by the "
    "recorded flags and drops the entry",
    private=True,
)
def sam_writes_a_number_for_the_stage(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd([INF])
    state = scaler._per_optimizer_states[id(optimizer)]
    flags = scaler._check_inf_per_device(optimizer)
    case.equal(sum(flag.item() for flag in flags.values()), 1.0, "sum of the flags")
    state["stage"] = 2
    scaler.update()
    case.equal(scaler.get_scale(), 2.0, "scale after the first half found an inf")
    case.equal(len(scaler._per_optimizer_states), 0, "entries after the update")
    optimizer = case.sgd([8.0])
    scaler._check_inf_per_device(optimizer)
    scaler._per_optimizer_states[id(optimizer)]["stage"] = 2
    scaler.step(optimizer)
    case.equal(case.values(optimizer), [[-7.0]], "parameters after a step from the stage 2, which does not unscale")
    case.equal(case.stage(scaler, optimizer), "STEPPED", "stage afterwards")
    scaler._per_optimizer_states[id(optimizer)]["stage"] = 2
    scaler.unscale_(optimizer)
    case.equal(case.gradients(optimizer), [[4.0]], "gradients after an unscale_ from the stage 2")
    optimizer = case.sgd([INF])
    scaler._check_inf_per_device(optimizer)
    scaler._per_optimizer_states[id(optimizer)]["stage"] = 2
    scaler.step(optimizer)
    case.equal(case.values(optimizer), [[1.0]], "parameters after a step from the stage 2 with an inf on record")
    optimizer = attribute_optimizer(case, [8.0])
    scaler._check_inf_per_device(optimizer)
    scaler._per_optimizer_states[id(optimizer)]["stage"] = 2
    scaler.step(optimizer)
    case.equal(optimizer.handed[0].grad_scale, case.tensor(2.0), "grad_scale at the stage 2")


@behaviour(
    "S12.7",
    "Trainers that floor or share the scale: every later call uses a _scale that was replaced or filled, also one "
    "of shape (1,) or shared by two scalers; one of int64 or float64 fails in update() only",
    private=True,
)
def trainers_replace_the_scale(case: Case) -> None:
    scaler = case.ready_scaler(4.0, growth_interval=1)
    floor = torch.tensor(128.0).to(scaler._scale)
    scaler._scale = floor
    _one_iteration(case, scaler, 128.0)
    case.same(scaler._scale, floor, "_scale after the update")
    case.equal(floor, case.tensor(256.0), "the replacement, after it grew")
    scaler._scale.fill_(32.0)
    _one_iteration(case, scaler, 32.0)
    scaler = case.new_scaler(4.0)
    scaler._init_scale = 32
    _one_iteration(case, scaler, 32.0)
    scaler = case.ready_scaler(4.0, growth_interval=1)
    scaler._scale = case.tensor([8.0])
    _one_iteration(case, scaler, 8.0, shape=(1,))
    case.equal(scaler._scale, case.tensor([16.0]), "a scale of shape (1,), after it grew")
    _two_scalers_share(case)
    for dtype in (torch.int64, torch.float64):
        scaler = case.ready_scaler(4.0)
        scaler._scale = case.tensor(8, dtype)
        optimizer = case.sgd([8.0])
        case.equal(scaler.scale(case.tensor([1.0])), case.tensor([8.0]), f"loss at a scale of {dtype}")
        scaler.step(optimizer)
        case.equal(case.values(optimizer), [[0.0]], f"parameters at a scale of {dtype}")
        case.equal(scaler.get_scale(), 8 if dtype is torch.int64 else 8.0, f"get_scale at a scale of {dtype}")
        case.raises(RuntimeError, "current_scale must be a float tensor.", scaler.update)


def _one_iteration(case: Case, scaler: Any, scale: float, shape: Sequence[int] = ()) -> None:
    """Every call uses this scale."""
    case.equal(scaler.scale(case.tensor(1.0)), case.tensor(scale).reshape(shape), "scaled loss")
    case.equal(scaler.get_scale(), scale, "get_scale")
    case.equal(scaler.state_dict()["scale"], scale, "scale in the state_dict")
    ordinary, handed = case.sgd([scale]), attribute_optimizer(case, [scale])
    scaler.unscale_(ordinary)
    case.equal(case.gradients(ordinary), [[1.0]], "gradients")
    scaler.step(ordinary)
    case.equal(case.values(ordinary), [[0.0]], "parameters")
    scaler.step(handed)
    case.equal(handed.handed[0].grad_scale, case.tensor(scale).reshape(shape), "grad_scale")
    scaler.update()


def _two_scalers_share(case: Case) -> None:
    first, second = case.ready_scaler(4.0), case.new_scaler(64.0)
    second._scale, second._growth_tracker = first._scale, first._growth_tracker
    optimizer = case.sgd([8.0])
    second.step(optimizer)
    second.update()
    case.equal(case.values(optimizer), [[-1.0]], "parameters of the second scaler's optimizer")
    case.equal(first._get_growth_tracker(), 1, "growth tracker of the first scaler after an update of the second")
    optimizer = case.sgd([INF])
    first.step(optimizer)
    first.update()
    case.equal(second.get_scale(), 2.0, "scale of the second scaler after an overflow of the first")
    case.equal(second.scale(case.tensor(1.0)), case.tensor(2.0), "loss scaled by the second scaler")


@behaviour(
    "U12.1",
    "CUDA graphs: a captured scale() follows later updates and loads, for the scale keeps its address",
    private=True,
    proven_on=(),
    only_on="cuda",
)
def a_captured_scale_follows_updates(case: Case) -> None:
    scaler = case.new_scaler(4.0)
    scaler.load_state_dict({**scaler.state_dict(), "scale": 16.0})
    with torch.no_grad():
        scaler._lazy_init_scale_growth_tracker(case.device)
    address, loss = scaler._scale.data_ptr(), case.tensor([1.0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scaled = scaler.scale(loss)
    for change in (
        lambda: None,
        lambda: scaler.update(8.0),
        lambda: scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0}),
    ):
        change()
        graph.replay()
        case.equal(scaled, case.tensor([scaler.get_scale()]), "loss scaled by the captured graph")
        case.equal(scaler._scale.data_ptr(), address, "address of the scale")
