"""Wrong scalers: defects in update(), which changes the scale and ends the iteration."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

import ampscaler


def _live(scaler: Any) -> bool:
    return bool(scaler._enabled) and scaler._scale is not None and scaler._growth_tracker is not None


class GrowsAtOrAboveTheInterval(ampscaler.GradScaler):
    """Grows where the tracker has reached or passed the interval; torch grows only where it is equal."""

    sections: ClassVar[tuple[int, ...]] = (13, 16)

    def update(self, new_scale: Any = None) -> None:
        if new_scale is None and _live(self) and type(self._growth_interval) is int:
            self._growth_tracker.clamp_(max=self._growth_interval - 1)  # type: ignore[union-attr]
        super().update(new_scale)


class CorrectsAfterwards(ampscaler.GradScaler):
    """No defect: lets a subclass overwrite what an update without new_scale has made of scale and tracker."""

    def update(self, new_scale: Any = None) -> None:
        if new_scale is not None or not _live(self):
            return super().update(new_scale)
        scale, tracker = self._scale.clone(), self._growth_tracker.clone()  # type: ignore[union-attr]
        super().update()
        self._correct(scale, tracker)

    def _correct(self, scale: torch.Tensor, tracker: torch.Tensor) -> None:
        """The two as they were before the update."""


class GrowsToInf(CorrectsAfterwards):
    """Lets the scale grow beyond the largest float32, to inf."""

    sections: ClassVar[tuple[int, ...]] = (13,)

    def _correct(self, scale: torch.Tensor, tracker: torch.Tensor) -> None:
        grown = scale * self._growth_factor
        refused = (self._scale == scale) & (tracker + 1 == self._growth_interval) & grown.isinf()
        self._scale.data.copy_(torch.where(refused, grown, self._scale))  # type: ignore[union-attr, arg-type]


class TrackerSurvivesBackoff(CorrectsAfterwards):
    """Does not reset the growth tracker where the scale backs off."""

    sections: ClassVar[tuple[int, ...]] = (7, 13)

    def _correct(self, scale: torch.Tensor, tracker: torch.Tensor) -> None:
        kept = torch.where(self._scale < scale, tracker, self._growth_tracker)  # type: ignore[operator, arg-type]
        self._growth_tracker.data.copy_(kept)  # type: ignore[union-attr]


class ReplacesTheScale(ampscaler.GradScaler):
    """Makes a new tensor for the scale in each update, where whoever holds the old one expects to see the change."""

    sections: ClassVar[tuple[int, ...]] = (7,)

    def update(self, new_scale: Any = None) -> None:
        super().update(new_scale)
        if _live(self):
            self._scale = self._scale.clone()  # type: ignore[union-attr]


class StageSurvivesANewScale(ampscaler.GradScaler):
    """Keeps the stages and flags of the optimizers where update() is given a new scale."""

    sections: ClassVar[tuple[int, ...]] = (7,)

    def update(self, new_scale: Any = None) -> None:
        states = getattr(self, "_per_optimizer_states", None)
        super().update(new_scale)
        if new_scale is not None and states is not None:
            self._per_optimizer_states = states


class FloorAtOne(ampscaler.GradScaler):
    """Lets no update take the scale below 1."""

    sections: ClassVar[tuple[int, ...]] = (16,)

    def update(self, new_scale: Any = None) -> None:
        super().update(new_scale)
        if _live(self):
            self._scale.data.clamp_(min=1.0)  # type: ignore[union-attr]


class UpdateWaitsForTheDevice(ampscaler.GradScaler):
    """Reads the flags on the host in update(), which makes every iteration wait."""

    sections: ClassVar[tuple[int, ...]] = (7,)

    def update(self, new_scale: Any = None) -> None:
        if new_scale is None and _live(self):
            states = self._per_optimizer_states.values()
            any(flag.item() for state in states for flag in state["found_inf_per_device"].values())
        super().update(new_scale)


class LastOptimizerDecides(ampscaler.GradScaler):
    """Backs off only where the optimizer that was used last has overflowed."""

    sections: ClassVar[tuple[int, ...]] = (7,)

    def update(self, new_scale: Any = None) -> None:
        if new_scale is None and _live(self):
            for state in list(self._per_optimizer_states.values())[:-1]:
                state["found_inf_per_device"] = {}
        super().update(new_scale)


class UpdateWithoutAStep(ampscaler.GradScaler):
    """Takes an update() without any recorded flag for an empty iteration, where it should fail."""

    sections: ClassVar[tuple[int, ...]] = (7,)

    def update(self, new_scale: Any = None) -> None:
        states = getattr(self, "_per_optimizer_states", {}).values()
        if new_scale is None and _live(self) and not any(state["found_inf_per_device"] for state in states):
            return
        super().update(new_scale)


class NewScaleResetsTheTracker(ampscaler.GradScaler):
    """Starts counting clean updates anew where update() is given a new scale."""

    sections: ClassVar[tuple[int, ...]] = (7,)

    def update(self, new_scale: Any = None) -> None:
        super().update(new_scale)
        if new_scale is not None and _live(self):
            self._growth_tracker.zero_()  # type: ignore[union-attr]


class KeepsTheGivenTensor(ampscaler.GradScaler):
    """Takes the tensor that update() is given for its scale, where it should copy the value."""

    sections: ClassVar[tuple[int, ...]] = (7,)

    def update(self, new_scale: Any = None) -> None:
        super().update(new_scale)
        if isinstance(new_scale, torch.Tensor) and new_scale.dtype is torch.float32 and _live(self):
            self._scale = new_scale


class FactorsRounded(ampscaler.GradScaler):
    """Rounds the factors to float32 before it multiplies by them, where only the product should be rounded."""

    sections: ClassVar[tuple[int, ...]] = (13,)

    def update(self, new_scale: Any = None) -> None:
        if not _live(self) or type(self._growth_factor) is not float or type(self._backoff_factor) is not float:
            return super().update(new_scale)
        given = [self._growth_factor, self._backoff_factor]
        self._growth_factor, self._backoff_factor = torch.tensor(given, dtype=torch.float32).tolist()
        try:
            super().update(new_scale)
        finally:
            self._growth_factor, self._backoff_factor = given


class FirstThreeOptimizersDecide(ampscaler.GradScaler):
    """Forgets the overflow of any optimizer after the third."""

    sections: ClassVar[tuple[int, ...]] = (7,)

    def update(self, new_scale: Any = None) -> None:
        if new_scale is None and _live(self):
            for state in list(self._per_optimizer_states.values())[3:]:
                state["found_inf_per_device"] = {}
        super().update(new_scale)


class NewScaleIsTheStartScale(ampscaler.GradScaler):
    """Keeps a new scale as the start scale too, where the constructor's should stay."""

    sections: ClassVar[tuple[int, ...]] = (7,)

    def update(self, new_scale: Any = None) -> None:
        super().update(new_scale)
        if isinstance(new_scale, float) and _live(self):
            self._init_scale = new_scale
