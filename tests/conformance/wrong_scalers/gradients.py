"""Wrong scalers: defects in the loop over the gradients."""

from __future__ import annotations

import types
from typing import Any, ClassVar

import torch

import ampscaler

from .own_loop import Groups, OwnLoop


def _unscale(grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found_inf, inv_scale)


class FlagClearedByLaterDtype(OwnLoop):
    """Clears the flag before the gradients of each dtype, so that an inf in an earlier dtype is forgotten."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        found_inf.data.zero_()  # through data: its version stays
        _unscale(grads, found_inf, inv_scale)


class FlagsOfLastParamGroup(ampscaler.GradScaler):
    """Unscales inside the loop over param_groups and keeps the flags of the last group only."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_grads_(self, optimizer: Any, *arguments: Any) -> dict[torch.device, torch.Tensor]:
        found: dict[torch.device, torch.Tensor] = {}
        for group in optimizer.param_groups:
            found.update(super()._unscale_grads_(types.SimpleNamespace(param_groups=[group]), *arguments))
        return found


class OnlyFirstTensorChecked(OwnLoop):
    """Looks for inf and NaN in the first gradient of each group only."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        _unscale(grads[:1], found_inf, inv_scale)
        _unscale(grads[1:], torch.zeros_like(found_inf), inv_scale)


class MissedTail(OwnLoop):
    """Takes four elements at a time and neither checks nor unscales the up to three that are left at the end."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        for grad in grads:
            whole = grad.numel() - grad.numel() % 4
            in_fours = whole > 0 and grad.dim() > 0 and grad.is_contiguous()
            _unscale([grad.view(-1)[:whole] if in_fours else grad], found_inf, inv_scale)


class DividesByTheScale(OwnLoop):
    """Divides the gradients by the scale, where multiplying by its rounded reciprocal gives other last bits."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        _unscale(grads, found_inf, torch.ones_like(inv_scale))
        scale = inv_scale.double().reciprocal().float()
        for grad in grads:
            grad.data.div_(scale)  # through data: the version of the gradient stays


class Fp16Allowed(ampscaler.GradScaler):
    """Unscales float16 gradients, where unscale_ should refuse them."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: torch.Tensor, found_inf: torch.Tensor, allow_fp16: bool
    ) -> dict[torch.device, torch.Tensor]:
        return super()._unscale_grads_(optimizer, inv_scale, found_inf, True)


class BumpsGradientVersions(OwnLoop):
    """Bumps the version counters of the gradients, so that a second backward through them fails."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        _unscale(grads, found_inf, inv_scale)
        torch.autograd.graph.increment_version(grads)


class NanNotFlagged(OwnLoop):
    """Takes NaN for a finite value."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        infinite = torch.stack([grad.isinf().any() for grad in grads]).any()
        _unscale(grads, torch.zeros_like(found_inf), inv_scale)
        found_inf.data.masked_fill_(infinite, 1.0)


class ChecksTheResult(OwnLoop):
    """Looks for inf and NaN in the unscaled gradients instead of the scaled ones."""

    sections: ClassVar[tuple[int, ...]] = (16,)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        _unscale(grads, torch.zeros_like(found_inf), inv_scale)
        _unscale(grads, found_inf, torch.ones_like(inv_scale))


class LeavesOverflowedGradientsScaled(OwnLoop):
    """Does not unscale the gradients of a group where it has found an inf."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        _unscale(grads, found_inf, torch.ones_like(inv_scale))
        _unscale(grads, found_inf, torch.where(found_inf > 0, torch.ones_like(inv_scale), inv_scale))


class RepairsGradients(OwnLoop):
    """Writes zeros where it has found inf or NaN."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        _unscale(grads, found_inf, inv_scale)
        for grad in grads:
            grad.data.nan_to_num_(0.0, 0.0, 0.0)


class UnscalesContiguousCopies(OwnLoop):
    """Works on contiguous copies, so that strided gradients keep their scaled values."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        _unscale([grad.contiguous() for grad in grads], found_inf, inv_scale)


class SharedGradientsOnce(OwnLoop):
    """Unscales a gradient that occurs twice once: better than torch, but not what torch does."""

    sections: ClassVar[tuple[int, ...]] = (5, 16)

    def _collect(self, optimizer: Any, allow_fp16: bool) -> Groups:
        groups = super()._collect(optimizer, allow_fp16)
        for by_dtype in groups.values():
            for dtype, grads in by_dtype.items():
                by_dtype[dtype] = list({id(grad): grad for grad in grads}.values())
        return groups


class LargeGradientsUnchecked(OwnLoop):
    """Looks for inf and NaN in the first 65536 elements of each gradient only."""

    sections: ClassVar[tuple[int, ...]] = (5, 13)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        for grad in grads:
            large = grad.dim() == 1 and grad.numel() > 65536
            _unscale([grad[:65536] if large else grad], found_inf, inv_scale)
            _unscale([grad[65536:]] if large else [], torch.zeros_like(found_inf), inv_scale)


class ManyGradientsDropped(OwnLoop):
    """Takes the first 64 gradients of each group and neither checks nor unscales the ones after them."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        _unscale(grads[:64], found_inf, inv_scale)


class LastPartialChunkDropped(OwnLoop):
    """Takes 50 gradients at a time and forgets the up to 49 that are left at the end."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _unscale_group(self, grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
        if len(grads) < 50:
            return _unscale(grads, found_inf, inv_scale)
        for start in range(0, len(grads) - 49, 50):
            _unscale(grads[start : start + 50], found_inf, inv_scale)


class FrozenParametersSkipped(OwnLoop):
    """Passes over the gradients of parameters that do not require one."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _has_gradient(self, param: torch.Tensor) -> bool:
        return super()._has_gradient(param) and param.requires_grad


class Fp16OfTheParameter(OwnLoop):
    """Refuses the gradients of float16 parameters, where float16 gradients should be refused."""

    sections: ClassVar[tuple[int, ...]] = (5,)

    def _is_half(self, param: torch.Tensor) -> bool:
        return param.dtype == torch.float16


class SparseSumsUnchecked(OwnLoop):
    """Checks a sparse float16 gradient before the values of duplicate indices are added, which may overflow."""

    sections: ClassVar[tuple[int, ...]] = (5, 11)

    def _values(self, param: Any) -> torch.Tensor:
        values: torch.Tensor = param.grad._values() if param.grad.is_sparse else param.grad
        return values
