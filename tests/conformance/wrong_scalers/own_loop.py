"""torch's scaler with its loop over the gradients written out, so that a defect can be put into it. Has none itself."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch.amp.grad_scaler import _MultiDeviceReplicator

Groups = dict[torch.device, dict[torch.dtype, list[torch.Tensor]]]


class OwnLoop(torch.amp.GradScaler):
    """Does what torch.amp.GradScaler does."""

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        """Checks and unscales gradients of one device and dtype."""
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found_inf, inv_scale)

    def _has_gradient(self, param: torch.Tensor) -> bool:
        return param.grad is not None

    def _is_half(self, param: Any) -> bool:
        half: bool = param.grad.dtype == torch.float16
        return half

    def _values(self, param: Any) -> torch.Tensor:
        """What is checked and unscaled of a parameter's gradient."""
        if not param.grad.is_sparse:
            return param.grad  # type: ignore[no-any-return]
        if param.grad.dtype is torch.float16:
            param.grad = param.grad.coalesce()
        return param.grad._values()  # type: ignore[no-any-return]

    def _collect(self, optimizer: Any, allow_fp16: bool) -> Groups:
        groups: Groups = defaultdict(lambda: defaultdict(list))
        for group in optimizer.param_groups:
            for param in group["params"]:
                if not isinstance(param, torch.Tensor):
                    raise AssertionError(f"expected param to be torch.Tensor, got {type(param).__name__}")
                if not self._has_gradient(param):
                    continue
                if not allow_fp16 and self._is_half(param):
                    raise ValueError("Attempting to unscale FP16 gradients.")
                grad = self._values(param)
                groups[grad.device][grad.dtype].append(grad)
        return groups

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: torch.Tensor, found_inf: torch.Tensor, allow_fp16: bool
    ) -> dict[torch.device, torch.Tensor]:
        inverses, flags = _MultiDeviceReplicator(inv_scale), _MultiDeviceReplicator(found_inf)
        with torch.no_grad():
            for device, by_dtype in self._collect(optimizer, allow_fp16).items():
                for grads in by_dtype.values():
                    self._unscale_group(grads, flags.get(device), inverses.get(device))
        return flags._per_device_tensors
