"""Wrong scalers: defects in construction, lazy initialisation, state_dict(), load_state_dict() and pickling."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar

import torch
from torch.amp.grad_scaler import _refresh_per_optimizer_state

import ampscaler


class HiddenAttribute(ampscaler.GradScaler):
    """Keeps a counter of its own in the instance, where the attributes are torch's and no others."""

    sections: ClassVar[tuple[int, ...]] = (2,)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._steps = 0


class StrictConstructor(ampscaler.GradScaler):
    """Refuses an init_scale that is not positive, where torch takes anything."""

    sections: ClassVar[tuple[int, ...]] = (2,)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._enabled and not self._init_scale > 0:
            raise ValueError(f"init_scale: expected a positive number, got {self._init_scale}")


class EagerInitialisation(ampscaler.GradScaler):
    """Makes the scale in the constructor on the CPU, where the first loss should decide."""

    sections: ClassVar[tuple[int, ...]] = (3,)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._enabled and type(self._init_scale) is float:
            self._lazy_init_scale_growth_tracker(torch.device("cpu"))


class ScaleOnTheConstructorsDevice(ampscaler.GradScaler):
    """Makes the scale on the device that the constructor was given, where the first loss should decide."""

    sections: ClassVar[tuple[int, ...]] = (3,)

    def _lazy_init_scale_growth_tracker(self, dev: Any) -> None:
        super()._lazy_init_scale_growth_tracker(torch.device("cpu") if self._device == "cpu" else dev)


class ScaleOfTheDefaultDtype(ampscaler.GradScaler):
    """Makes the scale in torch's default dtype, where it should be float32 always."""

    sections: ClassVar[tuple[int, ...]] = (3,)

    def _lazy_init_scale_growth_tracker(self, dev: Any) -> None:
        super()._lazy_init_scale_growth_tracker(dev)
        self._scale = self._scale.to(torch.get_default_dtype())  # type: ignore[union-attr]


class ScaleCachedOnTheHost(ampscaler.GradScaler):
    """Scales losses by a Python float that only its own methods refresh, so that a change of _scale is not seen."""

    sections: ClassVar[tuple[int, ...]] = (12,)

    def scale(self, outputs: Any) -> Any:
        if not self._enabled or not isinstance(outputs, torch.Tensor) or "_cached" not in self.__dict__:
            scaled = super().scale(outputs)
            if self._enabled and isinstance(self._scale, torch.Tensor) and self._scale.device.type != "meta":
                self._cached: float = self._scale.item()
            return scaled
        return outputs * torch.full((), self._cached, dtype=torch.float32, device=outputs.device)

    def update(self, new_scale: Any = None) -> None:
        super().update(new_scale)
        self.__dict__.pop("_cached", None)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.__dict__.pop("_cached", None)


class ScaleAlwaysAFloat(ampscaler.GradScaler):
    """Gives a float for the scale also before the first scale(), where it should be what was given."""

    sections: ClassVar[tuple[int, ...]] = (8, 9)

    def get_scale(self) -> float:
        return float(super().get_scale())


class KeysRenamed(ampscaler.GradScaler):
    """Saves the growth tracker under a key of its own, which torch's scaler cannot load."""

    sections: ClassVar[tuple[int, ...]] = (9,)

    def state_dict(self) -> dict[str, Any]:
        return {key.removeprefix("_"): value for key, value in super().state_dict().items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        renamed = {"growth_tracker": "_growth_tracker"}
        super().load_state_dict({renamed.get(key, key): value for key, value in state_dict.items()})


class TensorInTheState(ampscaler.GradScaler):
    """Saves the scale as the live tensor, which goes on changing after the state was taken."""

    sections: ClassVar[tuple[int, ...]] = (9,)

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self._enabled and self._scale is not None:
            state["scale"] = self._scale
        return state


class TrackerLostOnLoad(ampscaler.GradScaler):
    """Does not load the growth tracker, so that the first growth after a restart comes late."""

    sections: ClassVar[tuple[int, ...]] = (9,)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        if self._enabled:
            self._init_growth_tracker = 0
            if self._growth_tracker is not None:
                self._growth_tracker.fill_(0)


class LoadReplacesTheTensors(ampscaler.GradScaler):
    """Makes new tensors in load_state_dict(), where those that exist should be filled."""

    sections: ClassVar[tuple[int, ...]] = (9,)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        if self._enabled and self._scale is not None and self._growth_tracker is not None:
            self._scale, self._growth_tracker = self._scale.clone(), self._growth_tracker.clone()


class LoadsAllOrNothing(ampscaler.GradScaler):
    """Refuses a state without all five keys before it loads any: better than torch, but not what torch does."""

    sections: ClassVar[tuple[int, ...]] = (9, 16)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._enabled and len(state_dict) > 0:
            for key in ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"):
                state_dict[key]
        super().load_state_dict(state_dict)


class PicklesInMidIteration(ampscaler.GradScaler):
    """Lets itself be pickled between unscale_() and update() and loses the stages by it, where it should refuse."""

    sections: ClassVar[tuple[int, ...]] = (10, 16)

    def __getstate__(self) -> dict[str, Any]:
        if not self._enabled:
            return super().__getstate__()
        states = self._per_optimizer_states
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)
        try:
            return super().__getstate__()
        finally:
            self._per_optimizer_states = states


class PicklesTheTensors(ampscaler.GradScaler):
    """Pickles the scale's tensor, so that a copy has its scale before its first scale() and on the old device."""

    sections: ClassVar[tuple[int, ...]] = (10,)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if self._enabled:
            state["_scale"], state["_growth_tracker"] = self._scale, self._growth_tracker
        return state


class FactorsAreFloats(ampscaler.GradScaler):
    """Makes floats of the factors that the constructor is given, where they should be kept as they are."""

    sections: ClassVar[tuple[int, ...]] = (2,)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._enabled:
            self._growth_factor, self._backoff_factor = float(self._growth_factor), float(self._backoff_factor)


class ReadsTheScaleItself(ampscaler.GradScaler):
    """Reads _scale in get_scale(), so that an override of _get_scale_async is not called."""

    sections: ClassVar[tuple[int, ...]] = (8, 12)

    def get_scale(self) -> float:
        scale = self._scale if self._enabled else None
        return super().get_scale() if scale is None else scale.item()
