"""What a GradScaler has beyond torch's state, as values that pickle and copy."""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch

from ampscaler._C import ScalePolicy

Fp16Grads = Literal["error", "in_place", "in_optimizer"]


@dataclasses.dataclass
class OptedIn:
    """Exists from the first use of what torch does not have on; each default is torch's behaviour."""

    policy: ScalePolicy | None = None
    fp16_grads: Fp16Grads = "error"
    divisor: float | torch.Tensor | None = None  # until the next update()
