"""
C++ core of ampscaler; use the names of the package ampscaler instead.
"""

from __future__ import annotations
import collections.abc
import enum
import torch
import typing

__all__: list[str] = [
    "AmpScaler",
    "ScalePolicy",
    "StepOutcome",
    "StepResult",
    "advance_scale_",
    "factor_names",
    "has_unscale_kernel",
    "host_read_count",
    "plan_mixed_precision_update",
    "stats_names",
    "unscale_param_groups",
]

class StepOutcome(enum.Enum):
    """
    What AmpScaler.step did.
    """

    APPLIED = ...
    DISABLED = ...
    SKIPPED_NONFINITE = ...

class StepResult:
    """
    What AmpScaler.step did, and what the optimizer's step returned.
    """
    def __repr__(self) -> str: ...
    def applied(self) -> bool:
        """
        True if the optimizer changed the parameters. Waits for the device if the decision was left to it.
        """
    def outcome(self) -> StepOutcome:
        """
        The StepOutcome. Waits for the device if the decision was left to it.
        """
    @property
    def found_inf(self) -> torch.Tensor | None:
        """
        0-dim float32 tensor, exactly 0 or 1; None when the scaler is disabled. Does not wait.
        """
    @property
    def value(self) -> typing.Any:
        """
        What the optimizer's step returned; None when it was skipped.
        """

class ScalePolicy:
    """
    What a scaler does beyond torch's rule: the scale stays within [min_scale, max_scale].

    Each limit is None (no limit) or in [2**-126, 2**126], else ValueError, rounded to float32. Immutable.
    """
    def __eq__(self, other: typing.Any) -> typing.Any: ...
    def __getstate__(self) -> tuple[float | None, float | None]: ...
    def __hash__(self) -> int: ...
    def __init__(
        self,
        *,
        min_scale: typing.SupportsFloat | typing.SupportsIndex | None = None,
        max_scale: typing.SupportsFloat | typing.SupportsIndex | None = None,
    ) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self,
        arg0: tuple[
            typing.SupportsFloat | typing.SupportsIndex | None, typing.SupportsFloat | typing.SupportsIndex | None
        ],
    ) -> None: ...
    def clamp(self, scale: typing.Any) -> typing.Any:
        """
        The nearest scale within the limits: a float, or a new float32 tensor for a tensor. ValueError for a float NaN; does not wait.
        """
    @property
    def max_scale(self) -> float | None:
        """
        The scale does not grow beyond this; None: no cap.
        """
    @property
    def min_scale(self) -> float | None:
        """
        The scale does not fall below this; None: no floor.
        """

class AmpScaler:
    """
    The C++ loss scaler on Python optimizers: torch.amp.GradScaler's rules, and a step that says what it did.
    """
    def __init__(
        self,
        device: typing.Any = "cuda",
        init_scale: typing.SupportsFloat | typing.SupportsIndex = 65536.0,
        growth_factor: typing.SupportsFloat | typing.SupportsIndex = 2.0,
        backoff_factor: typing.SupportsFloat | typing.SupportsIndex = 0.5,
        growth_interval: typing.SupportsInt | typing.SupportsIndex = 2000,
        enabled: bool = True,
        *,
        policy: ScalePolicy | None = None,
    ) -> None: ...
    def get_backoff_factor(self) -> float: ...
    def get_growth_factor(self) -> float: ...
    def get_growth_interval(self) -> int: ...
    def get_growth_tracker(self) -> int:
        """
        Clean steps since the last change of the scale. Waits.
        """
    def get_scale(self) -> float:
        """
        The scale; 1.0 when disabled. Waits.
        """
    def is_enabled(self) -> bool: ...
    def load_state_dict(self, state_dict: dict[str, typing.Any]) -> None:
        """
        Takes over all five entries, or raises and changes none.
        """
    def scale(self, outputs: typing.Any) -> typing.Any:
        """
        `outputs` (a tensor, or nested lists and tuples of them) times the scale. Does not wait.
        """
    def set_backoff_factor(self, new_factor: typing.SupportsFloat | typing.SupportsIndex) -> None: ...
    def set_growth_factor(self, new_factor: typing.SupportsFloat | typing.SupportsIndex) -> None: ...
    def set_growth_interval(self, new_interval: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def state_dict(self) -> dict[str, typing.Any]:
        """
        The five entries of torch.amp.GradScaler.state_dict(). Waits once.
        """
    def step(self, optimizer: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> StepResult:
        """
        Runs optimizer.step(*args, **kwargs) unless a gradient holds inf or NaN. Returns a StepResult.

        Waits for the device once for an ordinary optimizer, never for a fused one.
        """
    def unscale_(self, optimizer: typing.Any) -> None:
        """
        Divides the optimizer's gradients by the scale in place and notes non-finite ones. Does not wait.
        """
    def update(self, new_scale: typing.Any = None) -> None:
        """
        Ends the iteration: adapts the scale, or sets it to `new_scale` (float or 0-dim tensor). Does not wait.
        """
    @property
    def policy(self) -> ScalePolicy:
        """
        The ScalePolicy; the default one where none was given.
        """

def advance_scale_(
    scale: torch.Tensor,
    growth_tracker: torch.Tensor,
    found_infs: collections.abc.Sequence[torch.Tensor],
    growth_factor: typing.SupportsFloat | typing.SupportsIndex,
    backoff_factor: typing.SupportsFloat | typing.SupportsIndex,
    growth_interval: typing.SupportsInt | typing.SupportsIndex,
    policy: ScalePolicy,
) -> None:
    """
    torch.ops.ampscaler.advance_scale_ with the numbers by name and a list of flags, of which one suffices. Does not wait.
    """

def factor_names() -> list[str]:
    """
    Names of the slots of the float32 vector `factors`, in their order.
    """

def has_unscale_kernel(device_type: str) -> bool:
    """
    True if this build has kernels of its own for that device type, such as "cuda".
    """

def host_read_count() -> int:
    """
    How often this process has waited for a device in ampscaler.
    """

def plan_mixed_precision_update(
    scaled: collections.abc.Sequence[torch.Tensor | None],
    scale: typing.SupportsFloat | typing.SupportsIndex,
    max_norm: typing.SupportsFloat | typing.SupportsIndex,
    backoff_factor: typing.SupportsFloat | typing.SupportsIndex = 0.5,
) -> dict[str, typing.Any]:
    """
    See ampscaler.functional.plan_mixed_precision_update. Waits for the device.
    """

def stats_names() -> list[str]:
    """
    Names of the slots of the float64 vector `stats`, in their order.
    """

def unscale_param_groups(
    param_groups: typing.Any, inv_scale: typing.Any, found_inf: typing.Any, allow_fp16: typing.Any
) -> dict[torch.device, torch.Tensor] | None:
    """
    torch.amp.GradScaler._unscale_grads_ in one call, or None (and nothing touched) when torch must do it.

    Multiplies every gradient in `param_groups` by `inv_scale` in place and returns {device: flag}, each flag a copy
    of `found_inf` (0-dim float32) set to 1 where a gradient holds inf or NaN. Does not wait for the device.
    """
