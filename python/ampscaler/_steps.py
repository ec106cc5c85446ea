"""unscale_ and step of GradScaler: torch's work in C++, and what torch's code cannot do.

Steps overrides the methods that torch's unscale_ and step call, for every scaler. The rest of it is what replaces
torch's unscale_ and step after an opt-in: a divisor, a clip coefficient, float16 gradients in place, check_only, or a
policy with fix_upstream, whose list is in docs/gradients.md.
"""

from __future__ import annotations

import math
import sys
import warnings
import weakref
from contextvars import ContextVar
from typing import Any

import torch
from torch.amp.grad_scaler import OptState

from ampscaler import _C, _optimizers
from ampscaler._C import GradientWrite
from ampscaler._gradient_methods import GradientMethods
from ampscaler._optimizers import CLIP_COEFFICIENT, CLIP_FOUND_INF, OWNER, State, with_clip_flag
from ampscaler._outside_graphs import outside_graphs

# Set while _unscale_grads_ is called for the flags only. Its arguments do not tell: reading them would wait.
_only_check: ContextVar[bool] = ContextVar("_only_check", default=False)

_NO_CHECKS = "No inf checks were recorded for this optimizer."
_NO_CLOSURE = "Closure use is not currently supported if GradScaler is enabled."
_PASSES_ITSELF = (
    "GradScaler is going to stop passing itself as a keyword argument to the passed "
    "optimizer. In the near future GradScaler registers `grad_scale: Tensor` and "
    "`found_inf: Tensor` to the passed optimizer and let the optimizer use them directly."
)


def warn_that_the_scaler_is_passed() -> None:
    """torch's FutureWarning, blamed on the line that called step, whatever torch.compile has put in between."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(
        (__name__, "ampscaler.grad_scaler", "torch._compile", "torch._dynamo")
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(_PASSES_ITSELF, FutureWarning, stacklevel=level)


class Steps(GradientMethods):
    """How gradients are unscaled and optimizers stepped, as torch does it and in one pass of our own."""

    @outside_graphs
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
            found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        return with_clip_flag(getattr(self, "_per_optimizer_states", {}).get(id(optimizer)), found)

    @outside_graphs
    def _check_inf_per_device(self, optimizer: Any) -> dict[str, Any]:
        """What torch's fused optimizers need before a step: {device: found_inf}, and gradients are only read."""
        ours = not self._replaces_unscale_grads()
        found = self._check_for_step(optimizer) if ours and self._mends() else None
        if found is not None:
            state = self._entry(optimizer)
            flags = with_clip_flag(state, found)
            state["found_inf_per_device"] = flags
            return flags
        token = _only_check.set(ours)
        try:
            return super()._check_inf_per_device(optimizer)  # which calls _unscale_grads_ with an inverse scale of 1
        finally:
            _only_check.reset(token)

    def _replaces_unscale_grads(self) -> bool:
        """Whether a subclass or an instance has its own way to the gradients, with an inverse scale of its own."""
        own = object.__getattribute__(self, "__dict__")  # unseen by a subclass that watches what torch looks up
        return "_unscale_grads_" in own or type(self)._unscale_grads_ is not Steps._unscale_grads_

    # What torch's code cannot do.

    def _unscale_in_one_pass(self, optimizer: Any) -> None:
        """unscale_ with a divisor, of float16 gradients, or mended. Products that are not finite count as found."""
        self._check_scale_growth_tracker("unscale_")
        stage = _optimizers.stage(self._own_entry(optimizer))
        if stage is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if stage is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        found = None if self._replaces_unscale_grads() else self._unscale_by_pass(optimizer)
        if found is None:
            inv_scale, found_inf = self._inverse_scale()
            found = self._unscale_grads_(optimizer, inv_scale, found_inf, self._allows_fp16())
        state = self._entry(optimizer)
        state["found_inf_per_device"] = with_clip_flag(state, found)
        state["stage"] = OptState.UNSCALED
        if self._mends():
            self._unscaled().add(optimizer.param_groups)

    def _unscale_by_pass(self, optimizer: Any) -> dict[torch.device, torch.Tensor] | None:
        return _C.unscale_once(
            optimizer.param_groups,
            self._scale_or_one(),
            divisor=self._divisor(),
            allow_fp16=self._allows_fp16(),
            write=self._divisor() is not None or not self._only_checks(),
            unscaled=self._unscaled() if self._mends() else _C.UnscaledGradients(),
        )

    def _check_step(self, optimizer: Any, kwargs: dict[str, Any]) -> None:
        if "closure" in kwargs:
            raise RuntimeError(_NO_CLOSURE)
        self._check_scale_growth_tracker("step")
        if _optimizers.stage(self._own_entry(optimizer)) is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")

    def _step_with_grad_scaler(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
        state = self._entry(optimizer)
        self._apply_divisor(optimizer, state)
        value: float | None = optimizer.step(*args, **kwargs, grad_scaler=self)
        state["stage"] = OptState.STEPPED
        return value

    @outside_graphs
    def _apply_divisor(self, optimizer: Any, state: State) -> None:
        """Divides the gradients of an optimizer that divides them by the scale itself and knows of nothing else."""
        divisor = self._divisor()
        if divisor is not None and state["stage"] is OptState.READY:
            target = _C.PassTarget(optimizer, state, GradientWrite.UNSCALE, True)
            one = torch.ones_like(self._scale_or_one())
            found = _C.run_gradient_pass("step", [target], one, divisor, 2.0)
            if found is not None:
                self._require_skip(optimizer, found.found_inf)
                return
            inverse, found_inf = _C.inverse_scale(one, divisor)
            self._require_skip(optimizer, found_inf)
            for gradient in _optimizers.gradients([optimizer]):
                gradient.mul_(inverse.to(gradient.device))

    @outside_graphs
    def _step_amp_aware(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
        """The step of an optimizer that gets scale, divisor and clip coefficient as one factor to divide by."""
        state = self._entry(optimizer)
        if state["stage"] is OptState.READY and CLIP_COEFFICIENT not in state:
            self._check_inf_per_device(optimizer)
        scaled = state["stage"] is not OptState.UNSCALED  # trainers write numbers of their own there
        if self._mends() and not state["found_inf_per_device"]:
            raise AssertionError(_NO_CHECKS)
        device = self._scale_or_one().device
        value, found_inf = _C.step_amp_aware(
            optimizer,
            args,
            kwargs,
            found_infs=list(state["found_inf_per_device"].values()),
            scale=self._get_scale_async() if scaled else None,
            divisor=self._divisor() if scaled else None,
            clip_coefficient=state.get(CLIP_COEFFICIENT),
            device=device,
        )
        # One decision for the step and for update(): the factors may have left float32 where gradients had not.
        state["found_inf_per_device"] = {device: found_inf}
        state["stage"] = OptState.STEPPED
        state.pop(CLIP_COEFFICIENT, None)  # the gradients have it now
        result: float | None = value
        return result

    # What fix_upstream mends.

    def _check_for_step(self, optimizer: Any) -> dict[str, Any] | None:
        scale, _ = self._check_scale_growth_tracker("_check_inf_per_device")
        target = _C.PassTarget(optimizer, None, GradientWrite.NOTHING, True)
        found: dict[Any, Any] | None = _C.check_for_step(target, scale, divisor=self._divisor())
        return found

    def _mends(self) -> bool:
        policy = None if self._ampscaler is None else self._ampscaler.policy
        return self._enabled and policy is not None and policy.fix_upstream

    def _unscaled(self) -> _C.UnscaledGradients:
        opt_in = self._opted_in()
        if opt_in.unscaled is None:
            opt_in.unscaled = _C.UnscaledGradients()
        return opt_in.unscaled

    @outside_graphs
    def _step_mended(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
        if args and callable(args[0]):
            raise RuntimeError(_NO_CLOSURE)
        self._check_step(optimizer, kwargs)
        try:
            if _optimizers.is_amp_aware(optimizer):
                return self._step_amp_aware_mended(optimizer, args, kwargs)
            return self._step_ordinary_mended(optimizer, args, kwargs)
        finally:
            self._drop_blank_entry(optimizer)

    def _step_ordinary_mended(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
        ready = _optimizers.stage(self._own_entry(optimizer)) is OptState.READY
        if ready:
            self.unscale_(optimizer)
        state = self._entry(optimizer)
        if not state["found_inf_per_device"]:
            state["stage"] = OptState.READY if ready else state["stage"]
            raise AssertionError(_NO_CHECKS)
        value = self._maybe_opt_step(optimizer, state, *args, **kwargs)
        state["stage"] = OptState.STEPPED
        return value

    def _step_amp_aware_mended(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
        scaled = _optimizers.stage(self._own_entry(optimizer)) is OptState.READY
        with_scaler = _optimizers.takes_grad_scaler(optimizer)
        if with_scaler:
            warn_that_the_scaler_is_passed()
        elif scaled and self._unscaled().shares(optimizer.param_groups):
            self._unscale_each_once(optimizer)  # its own step would divide all by the scale, at each mention
            scaled = False
        state = self._entry(optimizer)
        if with_scaler:
            value = self._step_with_grad_scaler(optimizer, args, kwargs)
        else:
            value = self._step_amp_aware(optimizer, args, kwargs)
        _optimizers.remember_step(optimizer, scaled=scaled)
        if scaled and _C.applies_clip_coefficient(optimizer):
            (found_inf,) = state["found_inf_per_device"].values()
            self._unscaled().add(optimizer.param_groups, found_inf)
        return value

    def _unscale_each_once(self, optimizer: Any) -> None:
        """With the coefficient that a clip has left."""
        state = self._own_entry(optimizer)
        if state is None or CLIP_COEFFICIENT not in state:
            self.unscale_(optimizer)
        else:
            self.clip_grad_value_(optimizer, math.inf)

    def _maybe_opt_step(
        self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> float | None:
        """torch's, but the flags of several devices are read together: waits once."""
        if _C.sum_found_inf(list(optimizer_state["found_inf_per_device"].values())) != 0.0:
            return None
        value: float | None = optimizer.step(*args, **kwargs)
        return value

    def _found_inf_per_device(self, optimizer: Any) -> dict[str, Any]:
        if not self._mends():
            return super()._found_inf_per_device(optimizer)
        state = self._own_entry(optimizer)
        return {} if state is None else state["found_inf_per_device"]

    # Entries: torch finds them by id, and ids come again.

    def _own_entry(self, optimizer: Any) -> State | None:
        """The optimizer's entry. One that an earlier optimizer has left at the same address is put aside."""
        state = super()._own_entry(optimizer)
        if state is None or not self._mends():
            return state
        owner = state.get(OWNER)
        if owner is None or owner() is optimizer:
            return state
        self._put_aside(optimizer, state)
        return None

    def _put_aside(self, optimizer: Any, state: State) -> None:
        """What an optimizer that is gone has found still counts for update, under a key that is no one's id."""
        self._per_optimizer_states[-id(state)] = self._per_optimizer_states.pop(id(optimizer))

    def _entry(self, optimizer: Any) -> State:
        """The optimizer's entry, made if there is none."""
        state = self._own_entry(optimizer)
        if state is None:
            state = self._per_optimizer_states[id(optimizer)]
        if self._mends() and OWNER not in state and type(optimizer).__weakrefoffset__:
            state[OWNER] = weakref.ref(optimizer)
        return state

    def _drop_blank_entry(self, optimizer: Any) -> None:
        """A call that was refused leaves no entry: with one, the scaler does not pickle."""
        state = self._own_entry(optimizer)
        if state is None or state["stage"] is not OptState.READY:
            return
        if not state["found_inf_per_device"] and CLIP_COEFFICIENT not in state and CLIP_FOUND_INF not in state:
            del self._per_optimizer_states[id(optimizer)]

    # Each gradient once, also where clipping unscales.

    def _settle_shared(self, method: str, optimizers: list[Any], states: list[State | None]) -> list[State | None]:
        """Unscales, one by one, the optimizers that hold a gradient which has been divided for another one."""
        if not self._mends():
            return states
        for optimizer, state in zip(optimizers, states, strict=True):
            if _optimizers.stage(state) is OptState.READY and self._unscaled().contains_any(optimizer.param_groups):
                self.unscale_(optimizer)
        return self._states(method, optimizers)

    def _record_clip(
        self,
        optimizer: Any,
        found: dict[torch.device, torch.Tensor],
        coefficient: torch.Tensor | None,
        amp_aware: bool,
    ) -> None:
        mends = self._mends()
        if mends:
            self._entry(optimizer)
        super()._record_clip(optimizer, found, coefficient, amp_aware)
        if mends:
            if _optimizers.stage(self._own_entry(optimizer)) is OptState.UNSCALED:
                self._unscaled().add(optimizer.param_groups)
            self._drop_blank_entry(optimizer)

    def _record_unscaled(self, optimizer: Any, found: dict[torch.device, torch.Tensor]) -> None:
        if self._mends():
            self._entry(optimizer)
            self._unscaled().add(optimizer.param_groups)
        super()._record_unscaled(optimizer, found)
