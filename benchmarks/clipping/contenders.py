"""What takes turns: torch's recipe, our call, and a plain read of the same memory."""

from __future__ import annotations

import math

import torch

import ampscaler
from clipping.cases import Case

LIMIT = 1e30  # never binds

# A smaller gradient takes longer to call torch.sum for than to read; all of them are 0.1 % of GPT-2's bytes.
SMALLEST_READ_BYTES = 64 * 1024


class Gradients:
    """A list of parameters with random gradients, and the optimizer that owns them.

    They are allocated as by a model and its backward pass: all parameters, then the gradients from the last to the
    first. Where they lie matters for thousands of small ones.
    """

    def __init__(self, case: Case, kind: str) -> None:
        # The values of the parameters are never read, and take no memory if they are large.
        self.parameters = [torch.nn.Parameter(torch.empty(shape, dtype=dtype)) for shape, dtype in case.tensors]
        for parameter in reversed(self.parameters):
            parameter.grad = torch.randn(parameter.shape, dtype=parameter.dtype)
        self.optimizer = torch.optim.SGD(self.parameters, lr=0.1, fused=kind == "fused")
        self._scale = 2.0

    def next_scale(self) -> float:
        """2 and 0.5 in turn: two calls that unscale in place leave the gradients as they were, to the bit."""
        self._scale = 1 / self._scale
        return self._scale

    def values(self) -> list[torch.Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]


class TorchRecipe:
    writes = True

    def __init__(self) -> None:
        self._scaler = torch.amp.GradScaler("cpu")
        self._scaler.scale(torch.ones(()))

    def prepare(self, gradients: Gradients, scale: float) -> None:
        self._scaler.update(scale)

    def run(self, gradients: Gradients) -> torch.Tensor:
        self._scaler.unscale_(gradients.optimizer)
        return torch.nn.utils.clip_grad_norm_(gradients.parameters, LIMIT)


class OneCall:
    def __init__(self, kind: str) -> None:
        self.writes = kind == "ordinary"
        self._scaler = ampscaler.GradScaler("cpu")
        self._scaler.scale(torch.ones(()))

    def prepare(self, gradients: Gradients, scale: float) -> None:
        self._scaler.update(scale)

    def run(self, gradients: Gradients) -> torch.Tensor:
        return self._scaler.clip_grad_norm_(gradients.optimizer, LIMIT)


class PlainRead:
    """Reads the bytes as numbers of another type, which none of the ways to sum them converts."""

    writes = False

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._views: list[torch.Tensor] = []

    def prepare(self, gradients: Gradients, scale: float) -> None:
        large = [value for value in gradients.values() if value.nbytes >= SMALLEST_READ_BYTES]
        self._views = [value.view(-1).view(self._dtype) for value in large]

    def run(self, gradients: Gradients) -> None:
        for view in self._views:
            torch.sum(view)


class ReadAsOne:
    """Reads one tensor of the size of the list: what memory allows where a call per tensor would take longer."""

    writes = False

    def __init__(self, case: Case) -> None:
        self._flat = torch.randn(case.bytes // 4)

    def prepare(self, gradients: Gradients, scale: float) -> None:
        pass

    def run(self, gradients: Gradients) -> None:
        torch.sum(self._flat)


Contender = TorchRecipe | OneCall | PlainRead | ReadAsOne


def contenders(case: Case, kind: str) -> dict[str, Contender]:
    result: dict[str, Contender] = {"torch": TorchRecipe(), "ampscaler": OneCall(kind)}
    if case.is_large:
        result |= {"read as float32": PlainRead(torch.float32), "read as int64": PlainRead(torch.int64)}
    if case.reads_as_one:
        result |= {"read as one": ReadAsOne(case)}
    return result


def true_norm(gradients: Gradients) -> float:
    """In double, of the stored values."""
    chunks = [chunk for value in gradients.values() for chunk in value.view(-1).split(1 << 22)]
    return math.sqrt(sum(chunk.double().square().sum().item() for chunk in chunks))


def check(gradients: Gradients, kind: str, runners: dict[str, Contender]) -> None:
    """Both do what is measured: the norm, and gradients divided by the scale or left alone. AssertionError if not.

    torch's own norm is off by 1 % for a hundred million fp32 values.
    """
    norm = true_norm(gradients)
    for name, tolerance in (("torch", 2e-2), ("ampscaler", 1e-6)):
        contender, scale = runners[name], 2.0
        before = [value.view(-1)[-1].item() for value in gradients.values()]
        contender.prepare(gradients, scale)
        found = contender.run(gradients)
        _expect(isinstance(found, torch.Tensor) and math.isclose(found, norm / scale, rel_tol=tolerance), name, found)
        if contender.writes:
            before, norm = [value / scale for value in before], norm / scale
        after = [value.view(-1)[-1].item() for value in gradients.values()]
        _expect(after == before, f"{name}, {kind}", "other gradients")


def _expect(holds: bool, who: str, found: object) -> None:
    if not holds:
        raise AssertionError(f"{who} does not do what is to be measured: {found}")
