"""The chain of one mixed-precision step without state, and a check that it agrees with the installed torch.

Gradients are iterables in which None stands for a missing gradient. All arithmetic happens in the C++ library; the
first three functions are operators (torch.ops.ampscaler.*), differentiable and traceable by torch.compile.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, TypedDict, cast

import torch

from ampscaler import _C
from ampscaler._build_info import VERSION

Gradients = Iterable[torch.Tensor | None]


class MixedPrecisionPlan(TypedDict):
    """What to do with the scaled gradients of one step."""

    gradients: list[torch.Tensor | None]
    grad_norm: torch.Tensor
    clip_coefficient: float
    should_step: bool
    next_scale: float
    reason: str


def _gradient_list(function: str, argument: str, gradients: Gradients) -> list[torch.Tensor | None]:
    """The gradients as a list, walked once; TypeError for what is neither a tensor nor None."""
    result = list(gradients)
    for index, gradient in enumerate(result):
        if not isinstance(gradient, (torch.Tensor, type(None))):
            got = type(gradient).__name__
            raise TypeError(f"{function}: {argument}[{index}]: expected a torch.Tensor or None, got {got}")
    return result


def _present(gradients: list[torch.Tensor | None]) -> list[torch.Tensor]:
    return [gradient for gradient in gradients if gradient is not None]


def _spread(values: list[torch.Tensor], pattern: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """The values where the pattern has a gradient."""
    following = iter(values)
    return [None if gradient is None else next(following) for gradient in pattern]


def _check_float_or_tensor(function: str, argument: str, value: object) -> None:
    if not isinstance(value, (torch.Tensor, float, int)):
        raise TypeError(f"{function}: {argument}: expected a float or a tensor, got {type(value).__name__}")


def unscale_gradients(scaled: Gradients, scale: float | torch.Tensor) -> list[torch.Tensor | None]:
    """New tensors with the values of `gradient / scale`; None stays None. Does not wait for the device.

    A float `scale` must be positive and finite (ValueError); a 1-element tensor is used unchecked.
    """
    gradients = _gradient_list("unscale_gradients", "scaled", scaled)
    operator = torch.ops.ampscaler.unscale_gradients
    overload = operator.Tensor if isinstance(scale, torch.Tensor) else operator.Scalar
    _check_float_or_tensor("unscale_gradients", "scale", scale)
    return _spread(overload(_present(gradients), scale), gradients)


def global_grad_norm(gradients: Gradients) -> torch.Tensor:
    """The 2-norm over all elements of all gradients: 0-dim float32, accumulated in float64, None ignored.

    On the device of the first gradient; 0 on the CPU when there is none. Does not wait for the device.
    """
    present = _present(_gradient_list("global_grad_norm", "gradients", gradients))
    norm: torch.Tensor = torch.ops.ampscaler.global_grad_norm(present)
    return norm


def unscale_and_clip(
    scaled: Gradients,
    scale: float | torch.Tensor,
    max_norm: float | torch.Tensor,
    *,
    norm_type: float = 2.0,
    eps: float = 0.0,
) -> tuple[list[torch.Tensor | None], torch.Tensor, torch.Tensor, torch.Tensor]:
    """(gradients, grad_norm, clip_coefficient, found_inf), the last three 0-dim float32. Does not wait for the device.

    The gradients are new tensors `gradient / scale * clip_coefficient`, and None stays None. The coefficient is 1 if
    the norm of the unscaled gradients is at most `max_norm`, else max_norm / (norm + eps). A gradient that is not
    finite after unscaling makes found_inf 1 and leaves all unclipped; so do a scale that is not finite, and a
    coefficient too small for float32.

    Floats are checked: `scale` is positive and finite, `max_norm` > 0, else ValueError. Tensors with one element are
    not read: a `max_norm` that is not > 0 counts as inf. `norm_type` is 2, inf or another p >= 0.
    """
    gradients = _gradient_list("unscale_and_clip", "scaled", scaled)
    for name, value in (("scale", scale), ("max_norm", max_norm)):
        _check_float_or_tensor("unscale_and_clip", name, value)
    if not isinstance(scale, torch.Tensor):
        if not 0.0 < scale < math.inf:
            raise ValueError(f"unscale_and_clip: scale: expected a positive finite number, got {scale}")
        scale = torch.full((), scale, dtype=torch.float64)
    limit, limit_tensor = (math.inf, max_norm) if isinstance(max_norm, torch.Tensor) else (max_norm, None)
    clipped, norm, coefficient, found_inf = torch.ops.ampscaler.unscale_and_clip(
        _present(gradients), scale, limit, max_norm_tensor=limit_tensor, norm_type=norm_type, eps=eps
    )
    return _spread(clipped, gradients), norm, coefficient, found_inf


def plan_mixed_precision_update(
    scaled: Gradients, scale: float, max_norm: float, backoff_factor: float = 0.5
) -> MixedPrecisionPlan:
    """Unscales, checks and clips: what to step with, or why to skip. Waits for the device.

    Finite gradients are multiplied by `clip_coefficient` = min(1, max_norm / (norm + 1e-12)) and the scale stays. If
    one is not finite, `gradients` are unscaled but not clipped, `grad_norm` is inf, the coefficient 0, and `next_scale`
    is `scale * backoff_factor`. (`grad_norm` is also inf when a finite norm exceeds float32: `should_step` decides.)

    Raises ValueError unless `scale` and `max_norm` are positive and `backoff_factor` is in (0, 1).
    """
    gradients = _gradient_list("plan_mixed_precision_update", "scaled", scaled)
    plan = _C.plan_mixed_precision_update(gradients, scale, max_norm, backoff_factor)
    return cast(MixedPrecisionPlan, plan)


def check_amp_framework_conformance() -> dict[str, Any]:
    """Compares these functions with the installed torch.amp.GradScaler, on the CPU.

    Returns {"status": "pass" or "fail", "versions": {...}, "checks": {name: bool}}.
    """
    finite, overflow = _torch_step(24.0), _torch_step(float("inf"))
    plan_finite, plan_overflow = _our_plan(24.0), _our_plan(float("inf"))
    unscaled = plan_finite["gradients"][0]
    checks = {
        "unscaled_gradient_equal": unscaled is not None and torch.equal(unscaled, finite.gradient),
        "both_step_when_finite": plan_finite["should_step"] and finite.stepped,
        "both_skip_on_inf": not plan_overflow["should_step"] and not overflow.stepped,
        "parameter_unchanged_on_inf": torch.equal(overflow.parameter, torch.ones(1)),
        "next_scale_equal": plan_overflow["next_scale"] == overflow.next_scale,
    }
    return {
        "status": "pass" if all(checks.values()) else "fail",
        "versions": {"torch": torch.__version__, "ampscaler": VERSION},
        "checks": checks,
    }


_SCALE = 8.0
_BACKOFF_FACTOR = 0.5


@dataclasses.dataclass
class _TorchStep:
    gradient: torch.Tensor
    parameter: torch.Tensor
    stepped: bool
    next_scale: float


def _torch_step(scaled_gradient: float) -> _TorchStep:
    """One step of torch's scaler and SGD on a parameter [1.0] with that scaled gradient."""
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    steps: list[object] = []
    optimizer.register_step_post_hook(lambda *arguments: steps.append(arguments))
    scaler = torch.amp.GradScaler("cpu", init_scale=_SCALE, backoff_factor=_BACKOFF_FACTOR)
    scaler.scale(torch.ones(()))
    gradient = parameter.grad = torch.full((1,), scaled_gradient)
    scaler.step(optimizer)
    scaler.update()
    return _TorchStep(gradient, parameter.detach(), bool(steps), scaler.get_scale())


def _our_plan(scaled_gradient: float) -> MixedPrecisionPlan:
    gradients = [torch.full((1,), scaled_gradient)]
    return plan_mixed_precision_update(gradients, _SCALE, float("inf"), _BACKOFF_FACTOR)
