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
    "GradientWrite",
    "PassResult",
    "PassTarget",
    "ScalePolicy",
    "StepOutcome",
    "StepResult",
    "UnscaledGradients",
    "advance_scale_",
    "applies_clip_coefficient",
    "check_for_step",
    "check_param_groups",
    "clamp_gradients",
    "clip_gradients",
    "combine_found_inf",
    "cpu_kernels",
    "factor_names",
    "has_unscale_kernel",
    "host_read_count",
    "inverse_scale",
    "is_found_inf",
    "plan_mixed_precision_update",
    "run_gradient_pass",
    "stats_names",
    "step_amp_aware",
    "sum_found_inf",
    "unscale_once",
    "unscale_param_groups",
]

class GradientWrite:
    """
    What a pass writes into gradients.

    Members:

      NOTHING

      UNSCALE
    """

    NOTHING: typing.ClassVar[GradientWrite]
    UNSCALE: typing.ClassVar[GradientWrite]
    __members__: typing.ClassVar[dict[str, GradientWrite]]
    @typing.overload
    def __eq__(self, other: GradientWrite) -> bool: ...
    @typing.overload
    def __eq__(self, other: typing.Any) -> bool: ...
    def __getstate__(self) -> int: ...
    def __hash__(self) -> int: ...
    def __index__(self) -> int: ...
    def __init__(self, value: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __int__(self) -> int: ...
    @typing.overload
    def __ne__(self, other: GradientWrite) -> bool: ...
    @typing.overload
    def __ne__(self, other: typing.Any) -> bool: ...
    def __repr__(self) -> str: ...
    def __setstate__(self, state: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __str__(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...

class PassTarget:
    """
    The gradients of one optimizer in a pass.
    """
    def __init__(self, optimizer: typing.Any, state: typing.Any, write: GradientWrite, allow_fp16: bool) -> None: ...

class PassResult:
    """
    What a pass has found.
    """
    @property
    def found_inf(self) -> torch.Tensor: ...
    @property
    def norm(self) -> torch.Tensor: ...

class UnscaledGradients:
    """
    The gradients of this iteration that were divided by the scale, held weakly.
    """
    def __init__(self) -> None: ...
    def add(self, param_groups: typing.Any, found_inf: torch.Tensor | None = None) -> None:
        """
        Their gradients hold true values now; with `found_inf`, the flag of a fused step, unless that step was skipped.
        """
    def contains_any(self, param_groups: typing.Any) -> bool:
        """
        Whether a gradient in there holds its true value. Waits only where a fused step has the answer.
        """
    def shares(self, param_groups: typing.Any) -> bool:
        """
        The same, or a gradient in there occurs twice.
        """

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
    What a scaler does beyond torch's: the scale stays within [min_scale, max_scale], and with fix_upstream what is wrong in torch's scaler is mended.

    Each limit is None (no limit) or in [2**-126, 2**126], else ValueError, rounded to float32. Immutable.
    """
    def __eq__(self, other: typing.Any) -> typing.Any: ...
    def __getstate__(self) -> tuple[float | None, float | None, bool]: ...
    def __hash__(self) -> int: ...
    def __init__(
        self,
        *,
        min_scale: typing.SupportsFloat | typing.SupportsIndex | None = None,
        max_scale: typing.SupportsFloat | typing.SupportsIndex | None = None,
        fix_upstream: bool = False,
    ) -> None: ...
    def __reduce_ex__(self, protocol: typing.SupportsInt | typing.SupportsIndex) -> tuple[typing.Any, ...]: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self,
        arg0: tuple[
            typing.SupportsFloat | typing.SupportsIndex | None, typing.SupportsFloat | typing.SupportsIndex | None, bool
        ],
    ) -> None: ...
    def clamp(self, scale: typing.Any) -> typing.Any:
        """
        The nearest scale within the limits: a float, or a new float32 tensor for a tensor. ValueError for a float NaN; does not wait.
        """
    @property
    def fix_upstream(self) -> bool:
        """
        GradScaler mends what is wrong in torch's own scaler. (AmpScaler does so always, but for some cases that docs/gradients.md names.)
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
    @staticmethod
    def check_only(device: typing.Any = "cuda") -> AmpScaler:
        """
        A scaler whose scale is 1 and stays so, for bfloat16 and float32: it checks, clips, skips and counts.
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
        fp16_grads: str = "error",
    ) -> None: ...
    def clip_grad_norm_(
        self,
        optimizer: typing.Any,
        max_norm: typing.SupportsFloat | typing.SupportsIndex | torch.Tensor,
        norm_type: typing.SupportsFloat | typing.SupportsIndex = 2.0,
        eps: typing.SupportsFloat | typing.SupportsIndex = 0.0,
    ) -> torch.Tensor:
        """
        Clips the true gradients of an optimizer, or of a list of them together, and returns their norm before that. Does not wait.

        Instead of unscale_ and torch's clip_grad_norm_, with any optimizer: ordinary ones are unscaled by it, torch's fused ones get the coefficient with the scale in step. Non-finite gradients are not clipped, and the step is skipped.
        """
    def clip_grad_value_(self, optimizer: typing.Any, clip_value: typing.SupportsFloat | typing.SupportsIndex) -> None:
        """
        Unscales the gradients, if that was not done, and clamps them to [-clip_value, clip_value]. Does not wait.
        """
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
    def grad_norm(
        self, optimizer: typing.Any, norm_type: typing.SupportsFloat | typing.SupportsIndex = 2.0
    ) -> torch.Tensor:
        """
        The norm of the true gradients, as the optimizer will apply or has applied them. Leaves no trace. Does not wait.
        """
    def grads_are_scaled(self, optimizer: typing.Any) -> bool:
        """
        Whether the gradients are multiplied by the scale right now. Waits only after the step of an optimizer that was handed the scale: a skipped one leaves them scaled.
        """
    def is_enabled(self) -> bool: ...
    def is_finite(self, optimizer: typing.Any) -> torch.Tensor:
        """
        0-dim bool tensor: False if the gradients will have the step skipped. From the check of this iteration, or else from a read that leaves no trace. Does not wait.
        """
    def load_state_dict(self, state_dict: dict[str, typing.Any]) -> None:
        """
        Takes over all five entries, or raises and changes none.
        """
    def scale(self, outputs: typing.Any) -> typing.Any:
        """
        `outputs` (a tensor, or nested lists and tuples of them) times the scale. Does not wait.
        """
    def set_backoff_factor(self, new_factor: typing.SupportsFloat | typing.SupportsIndex) -> None: ...
    def set_grad_divisor(self, divisor: typing.SupportsFloat | typing.SupportsIndex | torch.Tensor) -> None:
        """
        The total weight of the gradients accumulated until the next update(): true gradients are smaller by it. A tensor is not read; a useless one has the steps skipped.
        """
    def set_growth_factor(self, new_factor: typing.SupportsFloat | typing.SupportsIndex) -> None: ...
    def set_growth_interval(self, new_interval: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def state_dict(self) -> dict[str, typing.Any]:
        """
        The five entries of torch.amp.GradScaler.state_dict(). Waits once.
        """
    def step(self, optimizer: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> StepResult:
        """
        Runs optimizer.step(*args, **kwargs) unless a gradient holds inf or NaN. Returns a StepResult.

        Waits for the device once for an ordinary optimizer; for a fused one only where an SGD creates momentum buffers.
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

def applies_clip_coefficient(optimizer: typing.Any) -> bool:
    """
    True for torch's own fused optimizers: what is set as their grad_scale is sure to be applied.
    """

def check_for_step(
    target: PassTarget,
    scale: torch.Tensor,
    *,
    divisor: typing.SupportsFloat | typing.SupportsIndex | torch.Tensor | None,
) -> dict[torch.device, torch.Tensor] | None:
    """
    Reads the gradients of a fused optimizer: {device: flag}, set also where dividing by scale, divisor and the user's grad_scale overflows; or None when torch must do it. Does not wait.
    """

def check_param_groups(param_groups: typing.Any, scale: torch.Tensor) -> dict[torch.device, torch.Tensor] | None:
    """
    torch.amp.GradScaler._check_inf_per_device by reading only: {device: flag}, or None when torch must do it. Does not wait.
    """

def clamp_gradients(
    target: PassTarget,
    scale: torch.Tensor,
    *,
    divisor: typing.SupportsFloat | typing.SupportsIndex | torch.Tensor | None,
    clip_value: typing.SupportsFloat | typing.SupportsIndex,
) -> dict[torch.device, torch.Tensor] | None:
    """
    Unscales and clamps to [-clip_value, clip_value] in one pass; {device: flag}, or None like run_gradient_pass. Does not wait.
    """

def clip_gradients(
    operation: str,
    optimizers: list[typing.Any],
    states: list[typing.Any],
    enabled: bool,
    scale_is_one: bool,
    fp16_grads: str,
    scale: torch.Tensor,
    divisor: typing.SupportsFloat | typing.SupportsIndex | torch.Tensor | None,
    norm_type: typing.SupportsFloat | typing.SupportsIndex,
    max_norm: typing.SupportsFloat | typing.SupportsIndex | torch.Tensor,
    eps: typing.SupportsFloat | typing.SupportsIndex,
) -> tuple[torch.Tensor, torch.Tensor, list[tuple[dict[torch.device, torch.Tensor], torch.Tensor | None, bool]]] | None:
    """
    One pass over the gradients of all optimizers, and the second one where a limit binds. `states` are torch's entries or None.

    Returns (norm, flag, [({device: flag}, coefficient that the step is to apply or None, whether the optimizer takes the scale itself)]), or None, with nothing touched, when torch must do it (tensor subclasses). Does not wait.
    """

def combine_found_inf(found_infs: collections.abc.Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    """
    The maximum of the flags, exactly 0 or 1. Does not wait.
    """

def cpu_kernels() -> str:
    """
    The loops in use on the CPU: "baseline", "avx2" or "avx512". ValueError if AMPSCALER_CPU_ISA names others than the machine has.
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

def inverse_scale(
    scale: torch.Tensor, divisor: typing.SupportsFloat | typing.SupportsIndex | torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    (float32(1 / (scale * divisor)), flag): what torch's unscaling multiplies by, and 1 where the divisor is of no use. Does not wait.
    """

def is_found_inf(found_inf: torch.Tensor) -> bool:
    """
    Whether the flag is set. Waits.
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

def run_gradient_pass(
    operation: str,
    targets: collections.abc.Sequence[PassTarget],
    scale: torch.Tensor,
    divisor: typing.SupportsFloat | typing.SupportsIndex | torch.Tensor | None,
    norm_type: typing.SupportsFloat | typing.SupportsIndex,
) -> PassResult | None:
    """
    One pass over the gradients of all targets: the total norm, and unscaling if it is to be written.

    None, and nothing touched, when torch must do it (tensor subclasses, function modes). Does not wait.
    """

def stats_names() -> list[str]:
    """
    Names of the slots of the float64 vector `stats`, in their order.
    """

def step_amp_aware(
    optimizer: typing.Any,
    args: tuple[typing.Any, ...],
    kwargs: dict[str, typing.Any],
    *,
    found_infs: collections.abc.Sequence[torch.Tensor],
    scale: torch.Tensor | None,
    divisor: typing.SupportsFloat | typing.SupportsIndex | torch.Tensor | None,
    clip_coefficient: torch.Tensor | None,
    device: torch.device,
) -> tuple[typing.Any, torch.Tensor]:
    """
    optimizer.step(*args, **kwargs) with `grad_scale` and `found_inf` as attributes for its length. Returns its value and the flag.

    Waits only where a fused SGD creates momentum buffers.
    """

def sum_found_inf(found_infs: collections.abc.Sequence[torch.Tensor]) -> float:
    """
    The sum of the flags, on any devices. Waits once.
    """

def unscale_once(
    param_groups: typing.Any,
    scale: torch.Tensor,
    *,
    divisor: typing.SupportsFloat | typing.SupportsIndex | torch.Tensor | None,
    allow_fp16: bool,
    write: bool,
    unscaled: UnscaledGradients,
) -> dict[torch.device, torch.Tensor] | None:
    """
    Unscales each gradient object once, in one pass; {device: flag}. Products that are not finite set the flag too. Those in `unscaled` are only checked.

    None, and nothing touched, when torch must do it. Checks all before the first write.
    """

def unscale_param_groups(
    param_groups: typing.Any, inv_scale: typing.Any, found_inf: typing.Any, allow_fp16: typing.Any
) -> dict[torch.device, torch.Tensor] | None:
    """
    torch.amp.GradScaler._unscale_grads_ in one call, or None (and nothing touched) when torch must do it.

    Multiplies every gradient in `param_groups` by `inv_scale` in place and returns {device: flag}, each flag a copy
    of `found_inf` (0-dim float32) set to 1 where a gradient holds inf or NaN. Does not wait for the device.
    """
