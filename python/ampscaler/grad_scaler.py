"""GradScaler, a drop-in for torch.amp.GradScaler: same results, same errors, same state, less host time.

torch's own code runs everything except the walk over the gradients, which enters C++ once, the check before a fused
step, which only reads, the host's read of the flags, and the step of optimizers that are passed the scaler (_steps.py).
A scaler has no state beside torch's until something is used that torch does not have: whatever outsiders read, replace
or override on a torch scaler works here too. (The module _optimizers keeps, weakly, which amp-aware optimizers have
stepped on scaled gradients.)
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, get_args, overload

import torch
from torch._compile import _disable_dynamo
from torch.amp.grad_scaler import OptState, _refresh_per_optimizer_state

from ampscaler import _C, _optimizers, functional
from ampscaler._C import ScalePolicy
from ampscaler._opt_in import Fp16Grads, OptedIn
from ampscaler._optimizers import CLIP_COEFFICIENT
from ampscaler._outside_graphs import outside_graphs
from ampscaler._steps import Steps, warn_that_the_scaler_is_passed


def _cuda_is_missing() -> bool:
    return bool(torch.cuda.amp.common.amp_definitely_not_available())  # type: ignore[no-untyped-call]


def _is_acceptable(new_scale: object) -> bool:
    """Whether torch's update may take it. What it refuses must reach it as it is, for torch's words."""
    if isinstance(new_scale, torch.Tensor):
        return new_scale.numel() == 1 and not new_scale.requires_grad
    return isinstance(new_scale, float)


def _check_fp16_grads(fp16_grads: object) -> None:
    if fp16_grads not in get_args(Fp16Grads):
        expected = ", ".join(repr(value) for value in get_args(Fp16Grads))
        raise ValueError(f"GradScaler: fp16_grads: expected one of {expected}, got {fp16_grads!r}")


class GradScaler(Steps):
    """torch.amp.GradScaler with the gradients collected, grouped and unscaled in C++.

    Arguments, methods, errors and results are torch's, to the bit and to the word. Gradients that are not plain dense
    tensors of a supported dtype (sparse, DTensor and other subclasses, expanded or overlapping ones, other devices),
    and calls under a dispatch or function mode, go through torch's own implementation.

    With a `policy`, the scale stays within the policy's limits at every moment: init_scale, `update(new_scale)` and
    loaded scales are clamped to them, every update is, on the device, and the scale tensor is never replaced. With
    `ScalePolicy(fix_upstream=True)`, what is wrong in torch's scaler is mended (docs/gradients.md lists it). The policy
    is not part of `state_dict()`.

    `fp16_grads` says what to do with float16 gradients. "error": torch's rule, the step of an optimizer that divides by
    the scale itself takes them, and so do `grad_norm` and `is_finite`; all else is a ValueError. "in_optimizer":
    clip_grad_norm_ takes those of such an optimizer too. "in_place": `unscale_` and clipping take all, and round to
    float16 once.
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
        _check_fp16_grads(fp16_grads)
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
        if policy is not None or fp16_grads != "error":
            self._ampscaler = OptedIn(policy, fp16_grads)

    @classmethod
    def check_only(
        cls, device: str = "cuda", *, policy: ScalePolicy | None = None, fp16_grads: Fp16Grads = "error"
    ) -> GradScaler:
        """A scaler for bfloat16 and float32: the scale is 1 for good, and steps with inf or NaN are still skipped.

        All methods work, `scale(loss)` is the loss times 1. `unscale_` only reads, unless a divisor is set, and loaded
        scales become 1. `update(new_scale)` is a RuntimeError. ValueError if the limits of `policy` leave out 1.
        """
        if isinstance(policy, ScalePolicy) and policy.clamp(1.0) != 1.0:
            raise ValueError(f"check_only: policy: expected limits that admit a scale of 1, got {policy}")
        scaler = cls(device, 1.0, policy=policy, fp16_grads=fp16_grads)
        mends = policy is not None and policy.fix_upstream
        fixed = ScalePolicy(min_scale=1.0, max_scale=1.0, fix_upstream=mends)
        scaler._ampscaler = OptedIn(fixed, fp16_grads, check_only=True)
        return scaler

    @outside_graphs
    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """torch's unscale_; gradients are divided by a divisor as well, if one is set. Does not wait for the device.

        With a divisor, fp16_grads="in_place" or fix_upstream the versions of the gradients are bumped.
        """
        opt_in = self._ampscaler
        ours = opt_in is not None and (opt_in.check_only or opt_in.divisor is not None or self._allows_fp16())
        if not self._mends() and not ours:
            super().unscale_(optimizer)
        elif self._enabled:
            self._unscale_in_one_pass(optimizer)

    @overload
    def unscale(self, grads: torch.Tensor) -> torch.Tensor: ...

    @overload
    def unscale(self, grads: Iterable[torch.Tensor | None]) -> list[torch.Tensor | None]: ...

    @outside_graphs
    def unscale(
        self, grads: torch.Tensor | Iterable[torch.Tensor | None]
    ) -> torch.Tensor | Iterable[torch.Tensor | None]:
        """New tensors `grad / scale` that keep the graph, for gradient penalties; None stays None. Does not wait.

        For what `torch.autograd.grad(scaler.scale(loss), inputs, create_graph=True)` returns. Divides by a divisor too,
        if one is set. Leaves no trace in the scaler; a disabled one returns `grads`.
        """
        if not self._enabled:
            return grads
        scale, _ = self._check_scale_growth_tracker("unscale")
        single = isinstance(grads, torch.Tensor)
        unscaled = functional.unscale_gradients([grads] if isinstance(grads, torch.Tensor) else grads, scale)
        divisor = self._divisor()
        if divisor is not None:
            unscaled = functional.unscale_gradients(unscaled, divisor)
        if not single:
            return unscaled
        (one,) = unscaled
        assert one is not None
        return one

    # Only this frame is kept from torch.compile, as torch's is: what it calls, the optimizer's step, may be compiled.
    @_disable_dynamo(recursive=False)
    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """torch's step. Waits for the device once with an ordinary optimizer, never with torch's fused ones.

        (Except after clip_grad_norm_ or set_grad_divisor, or with fix_upstream: a fused SGD that creates its momentum
        buffers waits once.)
        """
        if self._mends():
            return self._step_mended(optimizer, args, kwargs)
        if not self._enabled or not _optimizers.is_amp_aware(optimizer):
            return super().step(optimizer, *args, **kwargs)
        state = self._peek(optimizer)
        scaled = _optimizers.stage(state) is OptState.READY
        if _optimizers.takes_grad_scaler(optimizer):
            self._check_step(optimizer, kwargs)
            warn_that_the_scaler_is_passed()  # torch's own warning would blame the line below
            value = self._step_with_grad_scaler(optimizer, args, kwargs)
        elif self._divisor() is not None or (state is not None and CLIP_COEFFICIENT in state):
            self._check_step(optimizer, kwargs)
            value = self._step_amp_aware(optimizer, args, kwargs)
        else:
            value = super().step(optimizer, *args, **kwargs)
        _optimizers.remember_step(optimizer, scaled=scaled)
        return value

    @outside_graphs
    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """torch's update; under a policy, within its limits. Does not wait for the device.

        Under a policy a float `new_scale` of NaN is a ValueError; a tensor is not read, since that would wait.
        """
        opt_in = self._ampscaler
        if opt_in is not None and opt_in.check_only and self._enabled and new_scale is not None:
            raise RuntimeError("update: new_scale: a scaler made by check_only() keeps its scale of 1.")
        if opt_in is None or opt_in.policy is None or not self._enabled:
            super().update(new_scale)
        elif new_scale is not None:
            super().update(opt_in.policy.clamp(new_scale) if _is_acceptable(new_scale) else new_scale)
        else:
            self._advance_scale(opt_in.policy)
        if opt_in is not None:
            opt_in.divisor = None
            opt_in.unscaled = None

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

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if self._ampscaler is not None:
            state["_ampscaler"] = self._ampscaler.between_iterations()
        return state
