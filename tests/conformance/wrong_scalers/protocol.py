"""Wrong scalers: defects in scale(), unscale_() and step(), in their order, stages, errors and hooks."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.amp.grad_scaler import OptState

import ampscaler


def _stage(scaler: Any, optimizer: Any) -> Any:
    """The optimizer's stage, without making an entry for it."""
    return getattr(scaler, "_per_optimizer_states", {}).get(id(optimizer), {}).get("stage", OptState.READY)


class CastsToTheLossDtype(ampscaler.GradScaler):
    """Casts the scaled loss back to the dtype of the loss, where a half loss times the scale should be a float32."""

    sections: ClassVar[tuple[int, ...]] = (4,)

    def scale(self, outputs: Any) -> Any:
        scaled = super().scale(outputs)
        return scaled.to(outputs.dtype) if isinstance(outputs, torch.Tensor) and self._enabled else scaled


class DisabledStillScales(ampscaler.GradScaler):
    """Multiplies a loss by the default scale though it is disabled."""

    sections: ClassVar[tuple[int, ...]] = (4,)

    def scale(self, outputs: Any) -> Any:
        scaled = super().scale(outputs)
        return scaled if self._enabled or not isinstance(scaled, torch.Tensor) else scaled * 65536.0


class ScalesInPlace(ampscaler.GradScaler):
    """Scales a float32 loss that needs no gradient in place, where the caller's loss should stay."""

    sections: ClassVar[tuple[int, ...]] = (4,)

    def scale(self, outputs: Any) -> Any:
        scaled = super().scale(outputs)
        plain = isinstance(outputs, torch.Tensor) and outputs.dtype is torch.float32 and not outputs.requires_grad
        return outputs.copy_(scaled) if plain and self._enabled else scaled


class OneFlagForAll(ampscaler.GradScaler):
    """Keeps one flag for all optimizers, so that the overflow of one makes it skip the others as well."""

    sections: ClassVar[tuple[int, ...]] = (6,)

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        flags = [
            flag for state in self._per_optimizer_states.values() for flag in state["found_inf_per_device"].values()
        ]
        return None if any(flag.item() for flag in flags) else optimizer.step(*args, **kwargs)


class SkipsOnExactlyOne(ampscaler.GradScaler):
    """Skips a step only where the flag is exactly 1, where anything but 0 should count."""

    sections: ClassVar[tuple[int, ...]] = (6,)

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        flags = optimizer_state["found_inf_per_device"].values()
        return None if sum(flag.item() for flag in flags) == 1.0 else optimizer.step(*args, **kwargs)


class DropsTheReturnValue(ampscaler.GradScaler):
    """Does not return what the optimizer's step returns."""

    sections: ClassVar[tuple[int, ...]] = (6,)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().step(optimizer, *args, **kwargs)


class PositionalClosureRefused(ampscaler.GradScaler):
    """Refuses a closure that is given by position, where only the keyword is refused."""

    sections: ClassVar[tuple[int, ...]] = (6, 16)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if self._enabled and any(callable(argument) for argument in args):
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        return super().step(optimizer, *args, **kwargs)


class ChecksAgainAtStep(ampscaler.GradScaler):
    """Checks the gradients at step() again after unscale_(), where what unscale_() found should rule."""

    sections: ClassVar[tuple[int, ...]] = (6,)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if self._enabled and _stage(self, optimizer) is OptState.UNSCALED:
            self._check_inf_per_device(optimizer)
        return super().step(optimizer, *args, **kwargs)


class TextChanged(ampscaler.GradScaler):
    """Words the error of a second unscale_() in its own way, where callers match on torch's words."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def unscale_(self, optimizer: Any) -> None:
        if self._enabled and _stage(self, optimizer) is OptState.UNSCALED:
            raise RuntimeError("unscale_() was called twice for this optimizer.")
        super().unscale_(optimizer)


class SecondUnscaleIgnored(ampscaler.GradScaler):
    """Does nothing in a second unscale_() of an iteration, where it should fail."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def unscale_(self, optimizer: Any) -> None:
        if not self._enabled or _stage(self, optimizer) is not OptState.UNSCALED:
            super().unscale_(optimizer)


class HooksBypassed(ampscaler.GradScaler):
    """Calls its own loop over the gradients in unscale_(), so that an override of _unscale_grads_ is not called."""

    sections: ClassVar[tuple[int, ...]] = (5, 12)

    def unscale_(self, optimizer: Any) -> None:
        if not self._enabled:
            return
        scale, _ = self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inverse, flag = scale.double().reciprocal().float(), torch.zeros((), device=scale.device)
        found = ampscaler.GradScaler._unscale_grads_(self, optimizer, inverse, flag, False)
        state["found_inf_per_device"], state["stage"] = found, OptState.UNSCALED


class StateByType(ampscaler.GradScaler):
    """Keeps the stage by the optimizer's type, so that of two of a type the second counts as used already."""

    sections: ClassVar[tuple[int, ...]] = (14,)

    def _share(self, optimizer: Any) -> None:
        if self._enabled and self._scale is not None:
            states: dict[Any, Any] = self._per_optimizer_states
            states[id(optimizer)] = states[type(optimizer)]

    def unscale_(self, optimizer: Any) -> None:
        self._share(optimizer)
        super().unscale_(optimizer)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if "closure" not in kwargs:
            self._share(optimizer)
        return super().step(optimizer, *args, **kwargs)


class SteppedTooEarly(ampscaler.GradScaler):
    """Calls an optimizer stepped before its step has run, so that a step that raises cannot be tried again."""

    sections: ClassVar[tuple[int, ...]] = (6,)

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        optimizer_state["stage"] = OptState.STEPPED
        return super()._maybe_opt_step(optimizer, optimizer_state, *args, **kwargs)


class StepsWithoutGradients(ampscaler.GradScaler):
    """Steps an optimizer that has no gradient, where step() should fail."""

    sections: ClassVar[tuple[int, ...]] = (6, 16)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().step(optimizer, *args, **kwargs)
        except AssertionError as error:
            if str(error) != "No inf checks were recorded for this optimizer.":
                raise
            return optimizer.step(*args, **kwargs)


class UnscalesForFusedOptimizers(ampscaler.GradScaler):
    """Unscales the gradients of a fused optimizer and gives it the scale nevertheless."""

    sections: ClassVar[tuple[int, ...]] = (11,)

    def _check_inf_per_device(self, optimizer: Any) -> dict[str, Any]:
        found = super()._check_inf_per_device(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.data.div_(self._scale)
        return found


class LeavesAttributesOnFusedOptimizers(ampscaler.GradScaler):
    """Sets grad_scale and found_inf of a fused optimizer to None after the step, where they should be removed."""

    sections: ClassVar[tuple[int, ...]] = (11,)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = super().step(optimizer, *args, **kwargs)
        if self._enabled and getattr(optimizer, "_step_supports_amp_scaling", False):
            optimizer.grad_scale = optimizer.found_inf = None
        return result


class CleansUpAfterAFusedStepThatRaises(ampscaler.GradScaler):
    """Removes grad_scale and found_inf where a fused step raises: better than torch, but not what torch does."""

    sections: ClassVar[tuple[int, ...]] = (11, 16)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().step(optimizer, *args, **kwargs)
        except Exception:
            for name in ("grad_scale", "found_inf"):
                getattr(optimizer, "__dict__", {}).pop(name, None)
            raise


class ParameterRenamed(ampscaler.GradScaler):
    """Calls the parameter of scale() loss, so that scale(outputs=...) fails."""

    sections: ClassVar[tuple[int, ...]] = (1,)

    def scale(self, loss: Any) -> Any:  # type: ignore[override]
        return super().scale(loss)


class ContainersShareTheScale(ampscaler.GradScaler):
    """Multiplies the items of lists and tuples by the scale itself, so that a backward after an update fails."""

    sections: ClassVar[tuple[int, ...]] = (4, 16)

    def scale(self, outputs: Any) -> Any:
        if self._enabled and type(outputs) in (list, tuple):
            return type(outputs)(self.scale(item) for item in outputs)
        return super().scale(outputs)


class ConsumesIterables(ampscaler.GradScaler):
    """Makes a list of any iterable, where generators and the like should be consumed by the caller."""

    sections: ClassVar[tuple[int, ...]] = (4, 16)

    def scale(self, outputs: Any) -> Any:
        scaled = super().scale(outputs)
        return list(scaled) if isinstance(scaled, map) else scaled


class RoundsTheScale(ampscaler.GradScaler):
    """Rounds the scale to the dtype of a half or bfloat16 loss before it multiplies."""

    sections: ClassVar[tuple[int, ...]] = (4,)

    def scale(self, outputs: Any) -> Any:
        scaled = super().scale(outputs)
        halves = (torch.float16, torch.bfloat16)
        if self._enabled and isinstance(outputs, torch.Tensor) and outputs.dtype in halves and outputs.dim() > 0:
            return outputs * self._scale.to(outputs)  # type: ignore[union-attr]
        return scaled


class UnscaleWaitsForTheDevice(ampscaler.GradScaler):
    """Reads the flags on the host in unscale_(), which makes the host wait before the step."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def unscale_(self, optimizer: Any) -> None:
        super().unscale_(optimizer)
        if self._enabled:
            flags = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
            any(flag.item() for flag in flags if flag.device.type != "meta")


class StageByNumber(ampscaler.GradScaler):
    """Takes the number 2 for the stage STEPPED, where only the member of OptState counts."""

    sections: ClassVar[tuple[int, ...]] = (6, 12)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if self._enabled and _stage(self, optimizer) == OptState.STEPPED.value:
            raise RuntimeError("step() has already been called since the last update().")
        return super().step(optimizer, *args, **kwargs)


class ChecksByAssert(ampscaler.GradScaler):
    """Checks by assert statements that scale() was called, so that python -O drops the checks."""

    sections: ClassVar[tuple[int, ...]] = (14, 15)

    def _check_scale_growth_tracker(self, funcname: str) -> tuple[torch.Tensor, torch.Tensor]:
        if __debug__:
            return super()._check_scale_growth_tracker(funcname)
        return self._scale, self._growth_tracker  # type: ignore[return-value]


class ForwardsOneArgument(ampscaler.GradScaler):
    """Hands the optimizer's step the first argument only of those that step() is given by position."""

    sections: ClassVar[tuple[int, ...]] = (6, 11)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        return super().step(optimizer, *args[:1], **kwargs)


class StepsUnderNoGrad(ampscaler.GradScaler):
    """Steps optimizers under no_grad, where the caller's grad mode should hold."""

    sections: ClassVar[tuple[int, ...]] = (6, 11)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return super().step(optimizer, *args, **kwargs)


class CountsSkipsOnTheOptimizer(ampscaler.GradScaler):
    """Calls the optimizer stepped where it was skipped, by the count that older schedulers go by."""

    sections: ClassVar[tuple[int, ...]] = (6,)

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if any(flag.item() for flag in optimizer_state["found_inf_per_device"].values()):
            optimizer._step_count = getattr(optimizer, "_step_count", 0) + 1
        return super()._maybe_opt_step(optimizer, optimizer_state, *args, **kwargs)


class GradScaleFromTheReciprocal(ampscaler.GradScaler):
    """Hands fused optimizers the reciprocal of the rounded reciprocal, which is not the scale to the last bit."""

    sections: ClassVar[tuple[int, ...]] = (11,)

    def _get_scale_async(self) -> torch.Tensor | None:
        scale = super()._get_scale_async()
        return None if scale is None else scale.reciprocal().reciprocal()

    def get_scale(self) -> float:
        scale = self._scale if self._enabled else None
        return super().get_scale() if scale is None else scale.item()


class ManyOutputsRefused(ampscaler.GradScaler):
    """Has room for 64 outputs in a list or tuple."""

    sections: ClassVar[tuple[int, ...]] = (4,)

    def scale(self, outputs: Any) -> Any:
        if self._enabled and isinstance(outputs, (list, tuple)) and len(outputs) > 64:
            raise ValueError("expected at most 64 outputs")
        return super().scale(outputs)
