"""GradScaler, a drop-in for torch.amp.GradScaler: same results, same errors, same state, less host time.

torch's own code runs everything except the walk over the gradients, which enters C++ once. There is no state beside
torch's: whatever outsiders read, replace or override on a torch scaler works here too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._compile import _disable_dynamo

from ampscaler import _C


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler with the gradients collected, grouped and unscaled in C++.

    Arguments, methods, errors and results are torch's, to the bit and to the word. Gradients that are not plain dense
    tensors of a supported dtype (sparse, DTensor and other subclasses, expanded or overlapping ones, other devices),
    and calls under a dispatch or function mode, go through torch's own implementation.
    """

    # torch.compile skips torch's own stateful scaler code, but not what that code calls: traced from this file, this
    # method would stop at _C and could be run on stand-ins for tensors. The public torch._dynamo.disable does the same
    # but loads the compiler, which takes as long as torch itself, when this module is imported.
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
