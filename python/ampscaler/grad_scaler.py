"""GradScaler, a drop-in for torch.amp.GradScaler: same results, same errors, same state, less host time.

torch's own code runs everything except the walk over the gradients, which enters C++ once. There is no state beside
torch's unless a policy is given: whatever outsiders read, replace or override on a torch scaler works here too.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from contextvars import ContextVar
from typing import Any, get_args

import torch
from torch._compile import _disable_dynamo
from torch.amp.grad_scaler import OptState, _refresh_per_optimizer_state

from ampscaler import _C, _optimizers
from ampscaler._C import GradientWrite, ScalePolicy
from ampscaler._gradient_methods import GradientMethods
from ampscaler._opt_in import Fp16Grads, OptedIn
from ampscaler._optimizers import CLIP_COEFFICIENT, State


def _cuda_is_missing() -> bool:
    return bool(torch.cuda.amp.common.amp_definitely_not_available())  # type: ignore[no-untyped-call]


def _is_acceptable(new_scale: object) -> bool:
    """Whether torch's update may take it. What it refuses must reach it as it is, for torch's words."""
    if isinstance(new_scale, torch.Tensor):
        return new_scale.numel() == 1 and not new_scale.requires_grad
    return isinstance(new_scale, float)


# Set while _unscale_grads_ is called for the flags only. Its arguments do not tell: reading them would wait.
_only_check: ContextVar[bool] = ContextVar("_only_check", default=False)

_PASSES_ITSELF = (
    "GradScaler is going to stop passing itself as a keyword argument to the passed "
    "optimizer. In the near future GradScaler registers `grad_scale: Tensor` and "
    "`found_inf: Tensor` to the passed optimizer and let the optimizer use them directly."
)


def _warn_caller(text: str) -> None:
    """A FutureWarning that is blamed on the line that called this file, whatever torch.compile has put in between."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(
        (__name__, "torch._compile", "torch._dynamo")
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, FutureWarning, stacklevel=level)


def _checked_fp16_grads(fp16_grads: Fp16Grads) -> Fp16Grads:
    if fp16_grads not in get_args(Fp16Grads):
        expected = ", ".join(repr(value) for value in get_args(Fp16Grads))
        raise ValueError(f"GradScaler: fp16_grads: expected one of {expected}, got {fp16_grads!r}")
    return fp16_grads


class GradScaler(GradientMethods):
    """torch.amp.GradScaler with the gradients collected, grouped and unscaled in C++.

    Arguments, methods, errors and results are torch's, to the bit and to the word. Gradients that are not plain dense
    tensors of a supported dtype (sparse, DTensor and other subclasses, expanded or overlapping ones, other devices),
    and calls under a dispatch or function mode, go through torch's own implementation.

    With a `policy`, the scale stays within the policy's limits at every moment: init_scale, `update(new_scale)` and
    loaded scales are clamped to them, every update is, on the device, and the scale tensor is never replaced. The
    policy is not part of `state_dict()`.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        *,
        policy: ScalePolicy | None = None,
        fp16_grads: Fp16Grads = "error",
    ) -> None:
        if policy is not None:
            if not isinstance(policy, ScalePolicy):
                raise TypeError(f"GradScaler: policy: expected a ScalePolicy or None, got {type(policy).__name__}")
            init_scale = policy.clamp(init_scale) if enabled else init_scale
        if device == "cuda" and enabled and _cuda_is_missing():
            # torch's constructor would do the same, but blame the line below instead of the caller's.
            text = "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling."
            warnings.warn(text, stacklevel=2)
            enabled = False
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        if policy is not None or _checked_fp16_grads(fp16_grads) != "error":
            self._ampscaler = OptedIn(policy, fp16_grads)

    # torch.compile skips torch's own stateful scaler code, but not what that code calls: traced from this file, the
    # methods marked so would stop at _C and could be run on stand-ins for tensors. The public torch._dynamo.disable
    # does the same but loads the compiler, which takes as long as torch itself, when this module is imported.
    @_disable_dynamo
    def _unscale_grads_(
        self,
        optimizer: Any,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        """Unscales in place; returns {device: found_inf}. Does not wait for the device."""
        # A property is left to torch, which reads it once: reading it here as well might be seen.
        param_groups = getattr(optimizer, "__dict__", {}).get("param_groups")
        if _only_check.get():
            found = _C.check_param_groups(param_groups, inv_scale)
        else:
            found = _C.unscale_param_groups(param_groups, inv_scale, found_inf, allow_fp16)
        if found is None:
            return super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        return found

    @_disable_dynamo
    def _check_inf_per_device(self, optimizer: Any) -> dict[str, Any]:
        """What torch's fused optimizers need before a step: {device: found_inf}, and gradients are only read."""
        token = _only_check.set(not self._replaces_unscale_grads())
        try:
            return super()._check_inf_per_device(optimizer)  # which calls _unscale_grads_ with an inverse scale of 1
        finally:
            _only_check.reset(token)

    def _replaces_unscale_grads(self) -> bool:
        """Whether a subclass or an instance has its own way to the gradients, with an inverse scale of its own."""
        own = object.__getattribute__(self, "__dict__")  # unseen by a subclass that watches what torch looks up
        return "_unscale_grads_" in own or type(self)._unscale_grads_ is not GradScaler._unscale_grads_

    @_disable_dynamo
    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """torch's unscale_; gradients are divided by a divisor as well, if one is set. Does not wait for the device."""
        if self._divisor() is None and not self._allows_fp16():
            super().unscale_(optimizer)
        elif self._enabled:
            self._unscale_in_one_pass(optimizer)

    def _unscale_in_one_pass(self, optimizer: torch.optim.Optimizer) -> None:
        self._check_scale_growth_tracker("unscale_")
        state = self._peek(optimizer)
        stage = _optimizers.stage(state)
        if stage is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if stage is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inv_scale, found_inf = self._inverse_scale()
        found = self._unscale_grads_(optimizer, inv_scale, found_inf, self._allows_fp16())
        self._record_unscaled(optimizer, found)

    def _maybe_opt_step(
        self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> float | None:
        """torch's, but the flags of several devices are read together: waits once."""
        if _C.sum_found_inf(list(optimizer_state["found_inf_per_device"].values())) != 0.0:
            return None
        value: float | None = optimizer.step(*args, **kwargs)
        return value

    # Only this frame is kept from torch.compile, as torch's is: what it calls, the optimizer's step, may be compiled.
    @_disable_dynamo(recursive=False)
    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """torch's step. Waits for the device once with an ordinary optimizer, never with torch's fused ones.

        (Except after clip_grad_norm_ or set_grad_divisor: a fused SGD that creates its momentum buffers waits once.)
        """
        if not self._enabled or not _optimizers.is_amp_aware(optimizer):
            return super().step(optimizer, *args, **kwargs)
        state = self._peek(optimizer)
        scaled = _optimizers.stage(state) is OptState.READY
        if _optimizers.takes_grad_scaler(optimizer):
            self._check_step(optimizer, kwargs)
            _warn_caller(_PASSES_ITSELF)  # torch's own warning would blame the line below
            value = self._step_with_grad_scaler(optimizer, args, kwargs)
        elif self._divisor() is not None or (state is not None and CLIP_COEFFICIENT in state):
            self._check_step(optimizer, kwargs)
            value = self._step_amp_aware(optimizer, args, kwargs)
        else:
            value = super().step(optimizer, *args, **kwargs)
        _optimizers.remember_step(optimizer, scaled=scaled)
        return value

    def _step_with_grad_scaler(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
        state = self._per_optimizer_states[id(optimizer)]
        self._apply_divisor(optimizer, state)
        value: float | None = optimizer.step(*args, **kwargs, grad_scaler=self)
        state["stage"] = OptState.STEPPED
        return value

    def _check_step(self, optimizer: Any, kwargs: dict[str, Any]) -> None:
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_scale_growth_tracker("step")
        if _optimizers.stage(self._peek(optimizer)) is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")

    @_disable_dynamo
    def _apply_divisor(self, optimizer: Any, state: State) -> None:
        """Divides the gradients of an optimizer that divides them by the scale itself and knows of nothing else."""
        divisor = self._divisor()
        if divisor is not None and state["stage"] is OptState.READY:
            target = _optimizers.pass_target(optimizer, state, GradientWrite.UNSCALE, allow_fp16=True)
            one = torch.ones_like(self._scale_or_one())
            _C.run_gradient_pass("step", [target], one, divisor=divisor, norm_type=2.0, max_norm=None, eps=0.0)

    @_disable_dynamo
    def _step_amp_aware(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
        """The step of an optimizer that gets scale, divisor and clip coefficient as one factor to divide by."""
        state = self._per_optimizer_states[id(optimizer)]
        scaled = state["stage"] is OptState.READY
        if scaled and not state["found_inf_per_device"]:
            self._check_inf_per_device(optimizer)
        device = self._scale_or_one().device
        value, found_inf = _C.step_amp_aware(
            optimizer,
            args,
            kwargs,
            found_infs=list(state["found_inf_per_device"].values()),
            scale=self._scale if scaled else None,
            divisor=self._divisor() if scaled else None,
            clip_coefficient=state.get(CLIP_COEFFICIENT),
            device=device,
        )
        # One decision for the step and for update(): the factors may have left float32 where gradients had not.
        state["found_inf_per_device"] = {device: found_inf}
        state["stage"] = OptState.STEPPED
        result: float | None = value
        return result

    @_disable_dynamo
    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """torch's update; under a policy, within its limits. Does not wait for the device.

        Under a policy a float `new_scale` of NaN is a ValueError; a tensor is not read, since that would wait.
        """
        opt_in = self._ampscaler
        if opt_in is None or opt_in.policy is None or not self._enabled:
            super().update(new_scale)
        elif new_scale is not None:
            super().update(opt_in.policy.clamp(new_scale) if _is_acceptable(new_scale) else new_scale)
        else:
            self._advance_scale(opt_in.policy)
        if opt_in is not None:
            opt_in.divisor = None

    def _advance_scale(self, policy: ScalePolicy) -> None:
        scale, growth_tracker = self._check_scale_growth_tracker("update")
        states = self._per_optimizer_states.values()
        found_infs = [found_inf for state in states for found_inf in state["found_inf_per_device"].values()]
        if not found_infs:
            raise AssertionError("No inf checks were recorded prior to update.")
        factors = (self._growth_factor, self._backoff_factor, self._growth_interval)
        _C.advance_scale_(scale, growth_tracker, found_infs, *factors, policy)
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """torch's load_state_dict; under a policy the scale is clamped to its limits."""
        policy = None if self._ampscaler is None else self._ampscaler.policy
        if policy is not None and self._enabled and "scale" in state_dict:
            state_dict = {**state_dict, "scale": policy.clamp(state_dict["scale"])}
        super().load_state_dict(state_dict)
