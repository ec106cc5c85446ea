"""RobustAMPManager: a whole mixed-precision training step around one AmpScaler, with the scale held between limits.

It owns the order of the calls (autocast, scaling, accumulation, clipping, step, update) and keeps what a training run
is asked about afterwards: each change of the scale, how many steps were skipped, which losses were not finite.
"""

from __future__ import annotations

import collections
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import torch

from ampscaler._C import AmpScaler, ScalePolicy, StepResult
from ampscaler._manager_checks import (
    checked_autocast_dtype,
    checked_device,
    checked_loss,
    checked_max_norm,
    checked_participants,
    checked_state,
    checked_step_idx,
    checked_steps,
    checked_weights,
)

_RECENT_CHANGES = 10  # scales in get_diagnostics()
_MOST_NONFINITE_LOSSES = 1000  # a run whose every loss is NaN must not fill the memory


class ScaleChange(TypedDict):
    """One change of the scale: by which `step_idx`, from what to what, and the loss of that window."""

    step: int
    pre_scale: float
    post_scale: float
    loss: float


class NonfiniteLoss(TypedDict):
    """A micro-batch whose loss was inf or NaN."""

    step: int
    loss: float


class Diagnostics(TypedDict):
    """What RobustAMPManager.get_diagnostics() returns."""

    current_scale: float
    total_skips: int
    scale_changes: int
    recent_scales: list[float]


class RobustAMPManager:
    """Trains a model in low precision: one call of `training_step` is one micro-batch.

    `accumulation_steps` micro-batches in a row are one window. All of its backward passes use the same scale; the
    gradients are cleared at its first micro-batch, and unscaled, checked, clipped and applied at its last, where the
    scale is adapted too. The gradient that is applied is the sum of those of the micro-batches, each times its weight.

    Arguments:
        model, optimizer: the parameters should be float32. The model is left in the mode (train or eval) that it is in.
        init_scale, growth_factor, backoff_factor, growth_interval: as for AmpScaler. The interval counts windows.
        max_scale, min_scale: the scale is within [min_scale, max_scale] at every moment, and init_scale is clamped to
            it. None: no limit. Values as for ScalePolicy.
        device: where autocast and the scale are; that of the model's first parameter by default. Batches are not moved.
        autocast_dtype: torch.float16 or torch.bfloat16; torch.float32 turns autocast off. The loss is scaled with all
            three.
        max_norm: the largest 2-norm of the unscaled gradients of all parameters of the optimizer together; larger ones
            are clipped to it by AmpScaler.clip_grad_norm_. None: no clipping.
        accumulation_steps: the micro-batches of a window.
        accumulation_weights: a positive number for each micro-batch of a window; they sum to 1. Equal ones by default.

    Attributes:
        scaler: the AmpScaler. Its scale tensor is never replaced.
        scale_history: a ScaleChange for each change of the scale that a training_step made, oldest first.
        skip_count: windows whose step was skipped because a gradient was inf or NaN. It is what the scaler decided, and
            not read off the scale, which does not move when it is at its floor.
        nonfinite_losses: the last 1000 losses that were inf or NaN, as NonfiniteLoss.
        last_step: the StepResult of the last window, None before the first one.

    Waiting: training_step waits for the device. Threads: one at a time.

    DDP: wrap the model first, and make one manager on each rank with the same arguments. All micro-batches but the last
    of a window run under `model.no_sync()`. An inf or NaN of one rank reaches all others with the reduction of the
    last backward pass, so all skip the window together and keep equal scales. If a call raises on one rank only, the
    others wait in that reduction: end the job, as for any error under DDP. Wrappers that shard the gradients are not
    supported: each rank would check and clip its own shard only, and ranks would decide differently.

    Raises ValueError and TypeError for arguments out of range, with the argument's name.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        init_scale: float = 65536.0,  # 2^16
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        max_scale: float | None = 16777216.0,  # 2^24
        *,
        min_scale: float | None = None,
        device: torch.device | str | None = None,
        autocast_dtype: torch.dtype = torch.float16,
        max_norm: float | None = None,
        accumulation_steps: int = 1,
        accumulation_weights: Sequence[float] | None = None,
    ) -> None:
        checked_participants(model, optimizer)
        self.model = model
        self.optimizer = optimizer
        self.device = checked_device(device, model)
        self.autocast_dtype = checked_autocast_dtype(autocast_dtype)
        self.max_norm = checked_max_norm(max_norm)
        self.accumulation_steps = checked_steps(accumulation_steps)
        self.accumulation_weights = checked_weights(accumulation_weights, self.accumulation_steps)
        policy = ScalePolicy(min_scale=min_scale, max_scale=max_scale)
        factors = (growth_factor, backoff_factor, growth_interval)
        self.scaler = AmpScaler(self.device, init_scale, *factors, policy=policy)
        self.scale_history: list[ScaleChange] = []
        self.skip_count = 0
        self.nonfinite_losses: collections.deque[NonfiniteLoss] = collections.deque(maxlen=_MOST_NONFINITE_LOSSES)
        self.last_step: StepResult | None = None
        self._window_losses: list[float] = []  # of the micro-batches that are done; empty between windows
        self._in_iteration = False  # the scaler may hold checks that no update() has taken yet

    def training_step(
        self, batch: Any, labels: Any, criterion: Callable[[Any, Any], torch.Tensor], step_idx: int
    ) -> float:
        """Runs one micro-batch, and steps if it is the last of its window. Waits for the device.

        The outputs are `model(**batch)` for a mapping, `model(*batch)` for a tuple and `model(batch)` for anything
        else; the loss is `criterion(outputs, labels)`, a floating tensor with one element, else ValueError. Both are
        computed under autocast. `step_idx` is what the records call this call; it decides nothing.

        Returns that loss as a float, neither scaled nor weighted: also when the step was skipped, and as it is when it
        is inf or NaN. Such a loss is noted, and the gradients decide about the step.

        Whatever raises in here, in the model, criterion, backward pass or optimizer, ends the window: the next call
        is the first of a new one, which clears the gradients. Scale and records are then as before the call. What an
        optimizer changed before it raised stays changed.
        """
        step = checked_step_idx(step_idx)
        losses, self._window_losses = self._window_losses, []  # an exception from here on leaves no window open
        if not losses:
            self._begin_window()
        is_last = len(losses) + 1 == self.accumulation_steps
        loss = self._backward(batch, labels, criterion, self.accumulation_weights[len(losses)], is_last)
        scales = self._step_and_update() if is_last else None
        value = float(loss)  # read as late as possible: it waits
        losses.append(value)
        if not math.isfinite(value):
            self.nonfinite_losses.append({"step": step, "loss": value})
        if scales is None:
            self._window_losses = losses
        elif scales[0] != scales[1]:
            window_loss = _weighted_sum(self.accumulation_weights, losses)
            change: ScaleChange = {"step": step, "pre_scale": scales[0], "post_scale": scales[1], "loss": window_loss}
            self.scale_history.append(change)
        return value

    def get_diagnostics(self) -> Diagnostics:
        """The scale now, skipped windows, changes of the scale, and the scales after the last ten changes. Waits."""
        return {
            "current_scale": self.scaler.get_scale(),
            "total_skips": self.skip_count,
            "scale_changes": len(self.scale_history),
            "recent_scales": [change["post_scale"] for change in self.scale_history[-_RECENT_CHANGES:]],
        }

    def state_dict(self) -> dict[str, Any]:
        """The scaler's state and the records, in plain values that torch.load(weights_only=True) accepts. Waits.

        Model, optimizer and the manager's own arguments are not in it, nor is a window that has begun: save between
        windows, with the states of model and optimizer.
        """
        return {
            "scaler": self.scaler.state_dict(),
            "skip_count": self.skip_count,
            "scale_history": [dict(change) for change in self.scale_history],
            "nonfinite_losses": [dict(loss) for loss in self.nonfinite_losses],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over such a state, or raises and changes nothing. The next call of training_step begins a window.

        The scale is clamped to this manager's limits; growth_factor, backoff_factor and growth_interval are those of
        the state, as for AmpScaler. `last_step` becomes None. Other keys are ignored. Raises KeyError for a missing
        key, TypeError and ValueError for a bad value, and what AmpScaler.load_state_dict raises.
        """
        scaler, skip_count, changes, losses = checked_state(state_dict)
        self.scaler.load_state_dict(scaler)  # the last that can refuse
        self.skip_count = skip_count
        self.scale_history = changes
        self.nonfinite_losses = collections.deque(losses, maxlen=_MOST_NONFINITE_LOSSES)
        self.last_step = None
        self._window_losses = []

    def _begin_window(self) -> None:
        if self._in_iteration:  # an exception came between the clip and update
            self.scaler.update(self.scaler.get_scale())
            self._in_iteration = False
        self.optimizer.zero_grad()

    def _backward(
        self, batch: Any, labels: Any, criterion: Callable[[Any, Any], torch.Tensor], weight: float, is_last: bool
    ) -> torch.Tensor:
        """Adds the scaled and weighted gradients of one micro-batch; returns its loss, detached."""
        # DDP decides in the forward pass whether the backward pass will reduce, so both are inside.
        no_sync = None if is_last else getattr(self.model, "no_sync", None)
        with contextlib.nullcontext() if no_sync is None else no_sync():
            with self._autocast():
                loss = criterion(_call_model(self.model, batch), labels)
            loss = checked_loss(loss)
            self.scaler.scale(torch.mul(loss, weight)).backward()
        return loss.detach()

    def _autocast(self) -> torch.autocast:
        if self.autocast_dtype == torch.float32:
            return torch.autocast(self.device.type, enabled=False)
        return torch.autocast(self.device.type, self.autocast_dtype)

    def _step_and_update(self) -> tuple[float, float]:
        """Ends the window; returns the scale before and after. Waits."""
        self._in_iteration = True
        if self.max_norm is not None:
            self.scaler.clip_grad_norm_(self.optimizer, self.max_norm)
        result = self.scaler.step(self.optimizer)
        pre_scale = self.scaler.get_scale()
        self.scaler.update()
        self._in_iteration = False
        self.last_step = result
        if not result.applied():
            self.skip_count += 1
        return pre_scale, self.scaler.get_scale()


def _call_model(model: torch.nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple) else model(batch)


def _weighted_sum(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))
