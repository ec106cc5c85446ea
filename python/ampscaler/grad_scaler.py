"""GradScaler, a drop-in for torch.amp.GradScaler: same results, same errors, same state, less host time.

torch's own code runs everything except the walk over the gradients, which enters C++ once. There is no state beside
torch's unless a policy is given: whatever outsiders read, replace or override on a torch scaler works here too.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import defaultdict
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.amp.grad_scaler import _refresh_per_optimizer_state

from ampscaler import _C
from ampscaler._C import ScalePolicy


def _cuda_is_missing() -> bool:
    return bool(torch.cuda.amp.common.amp_definitely_not_available())  # type: ignore[no-untyped-call]


def _is_acceptable(new_scale: object) -> bool:
    """Whether torch's update may take it. What it refuses must reach it as it is, for torch's words."""
    if isinstance(new_scale, torch.Tensor):
        return new_scale.numel() == 1 and not new_scale.requires_grad
    return isinstance(new_scale, float)


@dataclasses.dataclass
class _OptIn:
    """What a scaler has beyond torch's state, as values that pickle and copy."""

    policy: ScalePolicy


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler with the gradients collected, grouped and unscaled in C++.

    Arguments, methods, errors and results are torch's, to the bit and to the word. Gradients that are not plain dense
    tensors of a supported dtype (sparse, DTensor and other subclasses, expanded or overlapping ones, other devices),
    and calls under a dispatch or function mode, go through torch's own implementation.

    With a `policy`, the scale stays within the policy's limits at every moment: init_scale, `update(new_scale)` and
    loaded scales are clamped to them, every update is, on the device, and the scale tensor is never replaced. The
    policy is not part of `state_dict()`.
    """

    _ampscaler: _OptIn | None = None  # an attribute of the instance only after opting in

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
        if policy is not None:
            self._ampscaler = _OptIn(policy)

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
        found = _C.unscale_param_groups(param_groups, inv_scale, found_inf, allow_fp16)
        if found is None:
            return super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        return found

    @_disable_dynamo
    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """torch's update; under a policy, within its limits. Does not wait for the device.

        Under a policy a float `new_scale` of NaN is a ValueError; a tensor is not read, since that would wait.
        """
        opt_in = self._ampscaler
        if opt_in is None or not self._enabled:
            super().update(new_scale)
        elif new_scale is not None:
            super().update(opt_in.policy.clamp(new_scale) if _is_acceptable(new_scale) else new_scale)
        else:
            self._advance_scale(opt_in.policy)

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
        if self._ampscaler is not None and self._enabled and "scale" in state_dict:
            state_dict = {**state_dict, "scale": self._ampscaler.policy.clamp(state_dict["scale"])}
        super().load_state_dict(state_dict)
