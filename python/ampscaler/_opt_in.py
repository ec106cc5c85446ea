"""What a GradScaler has beyond torch's state, as values that pickle and copy."""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch

from ampscaler._C import ScalePolicy, UnscaledGradients

Fp16Grads = Literal["error", "in_place", "in_optimizer"]


@dataclasses.dataclass
class OptedIn:
    """Exists from the first use of what torch does not have on; each default is torch's behaviour."""

    policy: ScalePolicy | None = None
    fp16_grads: Fp16Grads = "error"
    check_only: bool = False
    divisor: float | torch.Tensor | None = None  # until the next update()
    unscaled: UnscaledGradients | None = None  # until the next update(); with fix_upstream

    def between_iterations(self) -> OptedIn:
        """A copy for a scaler that starts from here."""
        return dataclasses.replace(self, unscaled=None)
