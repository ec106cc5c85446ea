"""The methods of GradScaler that torch's scaler does not have: clipping, norms, queries, accumulation.

Each is one pass over the gradients in C++. What a pass finds out is kept in torch's own entry of the optimizer, and
only after the pass has succeeded: a query or a refused call leaves no entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch.amp.grad_scaler import OptState

from ampscaler import _C, _optimizers
from ampscaler._C import GradientWrite
from ampscaler._opt_in import Fp16Grads, OptedIn
from ampscaler._optimizers import CLIP_COEFFICIENT, CLIP_FOUND_INF, State, with_clip_flag
from ampscaler._outside_graphs import outside_graphs

Optimizers = torch.optim.Optimizer | Iterable[torch.optim.Optimizer]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _checked_number(method: str, argument: str, value: Any) -> float | torch.Tensor:
    """A float, or a tensor with one real element, which is not read. TypeError for anything else."""
    if type(value) is float:  # most are; whether it is a tensor takes longer to find out
        return value
    if isinstance(value, torch.Tensor):
        if value.numel() != 1 or value.is_complex() or value.dtype is torch.bool:
            got = f"shape {tuple(value.shape)} and {value.dtype}"
            raise TypeError(f"{method}: {argument}: expected a real tensor with 1 element, got one with {got}")
        return value.detach().clone()  # what the caller writes into it later is for later
    if not _is_number(value):
        raise TypeError(f"{method}: {argument}: expected a number or a tensor, got {type(value).__name__}")
    return float(value)


def _check_numbers(method: str, **arguments: Any) -> None:
    for argument, value in arguments.items():
        if not _is_number(value):
            raise TypeError(f"{method}: {argument}: expected a number, got {type(value).__name__}")


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """A scalar of a tensor subclass as a tensor, of a DTensor the one of all ranks."""
    whole: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.as_subclass(torch.Tensor)


class GradientMethods(torch.amp.GradScaler):
    """What GradScaler adds to torch's scaler. Tensors that are returned are on the device of the scale."""

    _ampscaler: OptedIn | None = None  # an attribute of the instance only after opting in

    @outside_graphs
    def clip_grad_norm_(
        self, optimizer: Optimizers, max_norm: float | torch.Tensor, norm_type: float = 2.0, eps: float = 0.0
    ) -> torch.Tensor:
        """Limits the norm of the true gradients of one or several optimizers; returns what it was: 0-dim float32.

        Takes the place of `unscale_` and torch.nn.utils.clip_grad_norm_ and works with fused optimizers. One norm and
        one coefficient count for all: 1 if the norm is at most `max_norm`, else max_norm / (norm + eps). If a
        gradient is inf or NaN, none is clipped, and `step` will skip all optimizers. Does not wait for the device.

        The gradients of torch's fused optimizers are not written: their step applies the coefficient. Those of other
        optimizers that take the scale themselves are multiplied by the coefficient and stay scaled; those of ordinary
        optimizers are unscaled, as by `unscale_`. Tensor subclasses are unscaled and clipped by torch's own recipe,
        those of fused optimizers too: `eps` is ignored.

        `max_norm` is > 0, else ValueError; inf clips nothing. A tensor with one element is not read: what is not > 0
        in it counts as inf. `norm_type` is 2, inf or another p >= 0. torch adds `eps=1e-6`.
        """
        method = "clip_grad_norm_"
        limit = _checked_number(method, "max_norm", max_norm)
        optimizers = _optimizers.optimizer_list(method, optimizer)
        states = self._states_to_clip(method, optimizers)
        scale, divisor, only_checks = self._scale_or_one(), self._divisor(), self._only_checks()
        kinds = (self._enabled, only_checks, self._fp16_grads())
        try:
            found = _C.clip_gradients(method, optimizers, states, *kinds, scale, divisor, norm_type, limit, eps)
        except TypeError:
            _check_numbers(method, norm_type=norm_type, eps=eps)
            raise
        if found is None:
            return self._clip_by_torch(optimizers, limit, norm_type)
        norm, found_inf, clips = found
        if self._enabled:
            for one, (flags, coefficient, amp_aware) in zip(optimizers, clips, strict=True):
                self._record_clip(one, flags, coefficient, amp_aware)
                if flags and (len(optimizers) > 1 or (amp_aware and coefficient is None)):
                    self._require_skip(one, found_inf)
        return norm

    @outside_graphs
    def clip_grad_value_(self, optimizer: torch.optim.Optimizer, clip_value: float) -> None:
        """Unscales the gradients and clamps them to [-clip_value, clip_value], in one pass. Does not wait.

        Counts as `unscale_`, for every kind of optimizer, and applies what clip_grad_norm_ has left to a step. NaN
        stays NaN, and where an inf is clamped `step` skips all the same. `clip_value` is >= 0, else ValueError.
        """
        method = "clip_grad_value_"
        _check_numbers(method, clip_value=clip_value)
        if math.isnan(clip_value) or clip_value < 0:
            raise ValueError(f"{method}: clip_value: expected a value >= 0, got {clip_value}")
        one = _optimizers.single(method, optimizer)
        (state,) = self._states_to_clip(method, [one])
        target = _C.PassTarget(one, state, GradientWrite.UNSCALE, self._allows_fp16())
        found = _C.clamp_gradients(target, self._scale_or_one(), divisor=self._divisor(), clip_value=clip_value)
        if found is None:
            self._clamp_by_torch(one, state, clip_value)
        elif self._enabled:
            self._record_unscaled(one, found)
            self._per_optimizer_states[id(one)].pop(CLIP_COEFFICIENT, None)  # applied

    @outside_graphs
    def grad_norm(self, optimizer: Optimizers, norm_type: float = 2.0) -> torch.Tensor:
        """The norm of the true gradients that `step` will apply: 0-dim float32. Only reads them. Does not wait."""
        _check_numbers("grad_norm", norm_type=norm_type)
        optimizers = _optimizers.optimizer_list("grad_norm", optimizer)
        found = self._read("grad_norm", optimizers, norm_type)
        if found is None:
            return self._norm_by_torch(optimizers, norm_type)
        return found.norm

    @outside_graphs
    def is_finite(self, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        """Whether the gradients are finite, which decides about `step`: a 0-dim bool tensor. Does not wait.

        The answer of the check that was made in this iteration, if there was one; else the gradients are read, and
        nothing is recorded.
        """
        one = _optimizers.single("is_finite", optimizer)
        (state,) = self._states("is_finite", [one])
        found_infs = [] if state is None else list(state["found_inf_per_device"].values())
        if state is not None and CLIP_FOUND_INF in state:
            found_infs.append(state[CLIP_FOUND_INF])
        if found_infs:
            return _C.combine_found_inf(found_infs, self._scale_or_one().device) == 0
        found = self._read("is_finite", [one], 2.0)
        if found is None:
            finite = [torch.isfinite(gradient).all() for gradient in _optimizers.gradients([one])]
            return torch.stack(finite).all() if finite else torch.ones((), dtype=torch.bool)
        return found.found_inf == 0

    def grads_are_scaled(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the gradients in memory are multiplied by the scale now: for loggers and hooks.

        Takes for granted that an optimizer which divides by the scale itself leaves true gradients, as torch's do.
        Waits for the device only after the step of an optimizer that takes the scale itself: if that step was skipped,
        the gradients have stayed as they were.
        """
        one = _optimizers.single("grads_are_scaled", optimizer)
        state = self._own_entry(one)
        if not self._enabled or self._scale is None:
            return False
        if state is None or _optimizers.stage(state) is not OptState.STEPPED:
            return _optimizers.stage(state) is OptState.READY
        return _optimizers.stepped_scaled(one) and _C.is_found_inf(
            _C.combine_found_inf(list(state["found_inf_per_device"].values()), self._scale.device)
        )

    def set_grad_divisor(self, divisor: float | torch.Tensor) -> None:
        """Divides the gradients of this iteration by `divisor` as well, wherever they are divided by the scale.

        For K backward passes with weights: scale each loss as it is, and give the total weight here (samples, tokens)
        before the gradients are used; it may be a tensor that is known only on the device. `update` clears it. A float
        is positive and finite, else ValueError; a tensor is not read, and one that is not makes the step a skip.
        RuntimeError after the gradients of this iteration were unscaled, clipped or checked.
        """
        method = "set_grad_divisor"
        if not self._enabled:
            raise RuntimeError(f"{method}: the scaler is disabled and does not touch gradients; see check_only().")
        value = _checked_number(method, "divisor", divisor)
        if isinstance(value, float) and not 0.0 < value < math.inf:
            raise ValueError(f"{method}: divisor: expected a positive finite number, got {value}")
        if any(state["found_inf_per_device"] for state in self._per_optimizer_states.values()):
            raise RuntimeError(f"{method}: the gradients of this iteration were unscaled or checked already.")
        self._opted_in().divisor = value

    # What the methods share.

    def _opted_in(self) -> OptedIn:
        if self._ampscaler is None:
            self._ampscaler = OptedIn()
        return self._ampscaler

    def _divisor(self) -> float | torch.Tensor | None:
        return None if self._ampscaler is None else self._ampscaler.divisor

    def _fp16_grads(self) -> Fp16Grads:
        return "error" if self._ampscaler is None else self._ampscaler.fp16_grads

    def _allows_fp16(self) -> bool:
        return not self._enabled or self._fp16_grads() == "in_place"

    def _only_checks(self) -> bool:
        return self._ampscaler is not None and self._ampscaler.check_only

    def _scale_or_one(self) -> torch.Tensor:
        scale = self._scale if self._enabled else None  # a disabled scaler of torch does not have the attribute
        return torch.ones(()) if scale is None else scale

    def _inverse_scale(self) -> tuple[torch.Tensor, torch.Tensor]:
        return _C.inverse_scale(self._scale_or_one(), self._divisor())

    def _stages(self, optimizers: list[Any]) -> list[OptState]:
        return [_optimizers.stage(self._own_entry(optimizer)) for optimizer in optimizers]

    def _own_entry(self, optimizer: Any) -> State | None:
        """The optimizer's entry, None if there is none; for a disabled scaler one whose gradients are true."""
        if not self._enabled:
            return {"stage": OptState.UNSCALED, "found_inf_per_device": {}}
        states: dict[int, State] = getattr(self, "_per_optimizer_states", {})  # missing where torch will complain
        return states.get(id(optimizer))

    def _states(self, method: str, optimizers: list[Any]) -> list[State | None]:
        """Their entries. AssertionError, with torch's text, before the first `scale`."""
        if self._enabled:
            self._check_scale_growth_tracker(method)
            if self._ampscaler is None:  # torch's entries as they are, without three calls for each
                entries = self._per_optimizer_states
                return [entries.get(id(optimizer)) for optimizer in optimizers]
        return [self._own_entry(optimizer) for optimizer in optimizers]

    def _states_to_clip(self, method: str, optimizers: list[Any]) -> list[State | None]:
        """The entries of optimizers that are about to be clipped. RuntimeError after a step."""
        states = self._states(method, optimizers)
        for state in states:
            if state is not None and state["stage"] is OptState.STEPPED:
                raise RuntimeError(f"{method}() is being called after step().")
        return states if self._ampscaler is None else self._settle_shared(method, optimizers, states)

    def _settle_shared(self, method: str, optimizers: list[Any], states: list[State | None]) -> list[State | None]:
        """The entries, after what an opted-in policy does about gradients that optimizers share."""
        return states

    def _read(self, method: str, optimizers: list[Any], norm_type: float) -> _C.PassResult | None:
        states = self._states(method, optimizers)
        targets = [
            _C.PassTarget(optimizer, state, GradientWrite.NOTHING, True)
            for optimizer, state in zip(optimizers, states, strict=True)
        ]
        return _C.run_gradient_pass(method, targets, self._scale_or_one(), self._divisor(), norm_type)

    def _record_clip(
        self,
        optimizer: Any,
        found: dict[torch.device, torch.Tensor],
        coefficient: torch.Tensor | None,
        amp_aware: bool,
    ) -> None:
        """With a coefficient that is left to the optimizer's step to apply."""
        if coefficient is not None:
            state = self._per_optimizer_states[id(optimizer)]
            state[CLIP_COEFFICIENT] = coefficient
            if state["stage"] is OptState.READY:
                state["found_inf_per_device"] = with_clip_flag(state, found)
        elif not amp_aware:
            self._record_unscaled(optimizer, found)

    def _require_skip(self, optimizer: Any, found_inf: torch.Tensor) -> None:
        """A step on gradients that were left unclipped for this flag must not happen, though they may be finite."""
        state = self._per_optimizer_states[id(optimizer)]
        earlier = [state[CLIP_FOUND_INF]] if CLIP_FOUND_INF in state else []
        state[CLIP_FOUND_INF] = _C.combine_found_inf([*earlier, found_inf], found_inf.device)
        state["found_inf_per_device"] = with_clip_flag(state, state["found_inf_per_device"])

    def _record_unscaled(self, optimizer: Any, found: dict[torch.device, torch.Tensor]) -> None:
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.READY:
            state["found_inf_per_device"] = with_clip_flag(state, found)
            state["stage"] = OptState.UNSCALED

    def _clip_by_torch(self, optimizers: list[Any], max_norm: float | torch.Tensor, norm_type: float) -> torch.Tensor:
        """torch's own recipe, for tensor subclasses: torch's coefficient, whatever eps is."""
        for optimizer, stage in zip(optimizers, self._stages(optimizers), strict=True):
            if stage is OptState.READY:
                self.unscale_(optimizer)
        gradients = _optimizers.gradients(optimizers)
        norm: torch.Tensor = torch.nn.utils.get_total_norm(gradients, norm_type)
        finite = torch.isfinite(norm)
        parameters = [p for one in optimizers for group in one.param_groups for p in group["params"]]
        clips_nothing = torch.zeros_like(norm)
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, torch.where(finite, norm, clips_nothing))  # type: ignore[arg-type]
        if self._enabled:
            for one in optimizers:
                self._require_skip(one, _plain(finite.logical_not()).float())
        return norm

    def _norm_by_torch(self, optimizers: list[Any], norm_type: float) -> torch.Tensor:
        inverse_scale = self._inverse_scale()[0]
        norms = []
        for one, stage in zip(optimizers, self._stages(optimizers), strict=True):
            norm = _plain(torch.nn.utils.get_total_norm(_optimizers.gradients([one]), norm_type)).to(inverse_scale)
            norms.append(torch.mul(norm, inverse_scale) if stage is OptState.READY else norm)
        total: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms), norm_type)
        return total

    def _clamp_by_torch(self, optimizer: Any, state: State | None, clip_value: float) -> None:
        if _optimizers.stage(state) is OptState.READY:
            self.unscale_(optimizer)
        for gradient in _optimizers.gradients([optimizer]):
            gradient.clamp_(-clip_value, clip_value)
