"""What the behaviours of section 13 share: sizes and values to try, references, and the two ways to unscale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.record import Log
from ampscaler.conformance.tools import to_float32

HALF, BFLOAT, FLOAT, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64

_BLOCKS = (1023, 1024, 1025, 4095, 4096, 4097)
#: Around the widths of vector registers, of blocks, and beyond the size from which torch uses threads.
SIZES = (*(0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129), *_BLOCKS, 100001)
INVERSES = (1.0, 0.5, 2.0**-16, 1 / 3000, 4.0, 0.0, -0.25, 1e-30, 1e-42, math.inf, math.nan)
NON_FINITE = (math.inf, -math.inf, math.nan)

_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def gradient(case: Case, size: int, dtype: torch.dtype) -> torch.Tensor:
    """Finite values of all magnitudes, with the largest, tiny, subnormal and signed zero ones among them."""
    limits = torch.finfo(dtype)
    values = torch.randn(size, dtype=DOUBLE) * 1000
    largest = 3e38 if dtype == DOUBLE and case.device.type != "cpu" else limits.max  # narrowed to float32 on CUDA
    special = [-0.0, largest, limits.tiny, -largest, limits.tiny * limits.eps, 0.0, -limits.tiny / 2]
    values[3 : 3 + len(special)] = torch.tensor(special, dtype=DOUBLE)[: max(0, size - 3)]
    return values.clamp(limits.min, limits.max).to(dtype).to(case.device)


def product(values: torch.Tensor, inverse: float) -> torch.Tensor:
    """values * float32(inverse), exact in double precision, then rounded: to float32, and from there to 16 bits.

    The product of two float32 values is exact in double, so that the first rounding is the only one of float32.
    """
    exact = values.cpu().double() * to_float32(inverse)
    rounded = exact if values.dtype == DOUBLE else exact.float()
    return rounded.to(values.dtype).to(values.device)


def check_bits(case: Case, got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Like case.equal, for tensors of any size: a difference names the first element."""
    case.equal((got.dtype, tuple(got.shape)), (expected.dtype, tuple(expected.shape)), f"{what}: dtype and shape")
    word = _WORDS[got.element_size()]
    flat, right = got.detach().reshape(-1), expected.reshape(-1)
    different = (flat.view(word) != right.view(word)) & ~(flat.isnan() & right.isnan())
    for index in different.nonzero().flatten().tolist()[:1]:
        case.equal(flat[index], right[index], f"{what}: element {index} of {flat.numel()}")


def unscale(case: Case, gradients: Sequence[torch.Tensor], inverse: float, found_inf: float = 0.0) -> torch.Tensor:
    """Calls the operator under test; returns its flag."""
    flag = case.tensor(found_inf)
    case.operators.unscale(list(gradients), flag, case.tensor(inverse))
    return flag


def check_unscale(case: Case, gradients: Sequence[torch.Tensor], inverse: float, found: bool = False) -> None:
    """The operator under test multiplies these gradients as the reference does, and sets the flag if `found`."""
    expected = [product(g, inverse) for g in gradients]
    what = f"{_describe(gradients)}, inv_scale {inverse}"
    flag = unscale(case, gradients, inverse)
    case.equal(flag, case.tensor(float(found)), f"{what}: found_inf")
    for number, (got, right) in enumerate(zip(gradients, expected, strict=True)):
        check_bits(case, got, right, f"{what}: gradient {number}")


def check_scaler(case: Case, gradients: Sequence[torch.Tensor], scale: float, found: bool = False) -> None:
    """The scaler under test does the same with an optimizer's gradients; an overflow halves its scale, skips the step.

    Starts a new report, so that a difference shows the calls that led to it and no others.
    """
    case.log = Log(case.log.observer)
    expected = [product(g, 1 / to_float32(scale)) for g in gradients]
    scaler = case.ready_scaler(scale)
    optimizer = case.sgd(*gradients)
    scaler.unscale_(optimizer)
    what = f"{_describe(gradients)}, scale {scale}"
    now: list[Any] = [parameter.grad for parameter in case.parameters(optimizer)]
    for number, (got, right) in enumerate(zip(now, expected, strict=True)):
        check_bits(case, got, right, f"{what}: gradient {number}")
    scaler.step(optimizer)
    scaler.update()
    case.equal(scaler.get_scale(), to_float32(scale) * (0.5 if found else 1.0), f"{what}: scale after the update")
    if found:
        for number, parameter in enumerate(case.parameters(optimizer)):
            check_bits(case, parameter, torch.ones_like(parameter), f"{what}: parameter {number} after a skipped step")


def planted(case: Case, size: int, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Gradients of ones with a non-finite first, middle and last element; inf, -inf and NaN take turns."""
    for turn, position in enumerate(dict.fromkeys((0, size // 2, size - 1))):
        values = torch.ones(size, dtype=dtype, device=case.device)
        values[position] = NON_FINITE[(turn + size) % 3]
        yield values


def subnormal(case: Case, dtype: torch.dtype) -> torch.Tensor:
    """The smallest values of the dtype, so that a product has to be rounded among subnormal numbers."""
    limits = torch.finfo(dtype)
    return (torch.arange(1, 200, dtype=DOUBLE) * (limits.tiny * limits.eps)).to(dtype).to(case.device)


def many(case: Case, dtype: torch.dtype) -> Iterator[list[torch.Tensor]]:
    """Lists longer than the chunks that kernels cut them into; the first, a middle or the last gradient is bad."""
    for turn, which in enumerate((0, 64, 130)):
        listed = [gradient(case, 5, dtype) for _ in range(131)]
        listed[which][turn] = NON_FINITE[turn]
        yield listed


def _describe(gradients: Sequence[torch.Tensor]) -> str:
    kinds = ", ".join(f"{str(g.dtype).removeprefix('torch.')}{list(g.shape)}" for g in gradients)
    return kinds if len(kinds) < 100 else f"{kinds[:100]}..."
