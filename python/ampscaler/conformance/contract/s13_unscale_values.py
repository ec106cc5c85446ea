"""Section 13.1: the values that the unscale operator, and a scaler, give; the flag; dtypes; version counters."""

from __future__ import annotations

import math

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.contract.s13_tools import (
    BFLOAT,
    DOUBLE,
    FLOAT,
    HALF,
    INVERSES,
    NON_FINITE,
    SIZES,
    check_scaler,
    check_unscale,
    gradient,
    many,
    planted,
    subnormal,
    unscale,
)
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import operator_dtypes, scaler_dtypes


def _check_all_sizes(case: Case, dtype: torch.dtype) -> None:
    for size in SIZES:
        for inverse in INVERSES if size < 5000 else (1.0, 1 / 3000):
            check_unscale(case, [gradient(case, size, dtype)], inverse)
    check_unscale(case, [gradient(case, size, dtype) for size in SIZES], 1 / 3000)
    for inverse in (0.5, 0.25, 0.3, 1.5):
        check_unscale(case, [subnormal(case, dtype)], inverse)
    if case.scaler_class is not None and dtype in scaler_dtypes(case):
        check_scaler(case, [subnormal(case, dtype)], 4.0)
        for scale in (1.0, 65536.0, 3000.0):
            check_scaler(case, [gradient(case, size, dtype) for size in SIZES], scale)


@behaviour(
    "S13.2",
    "The unscale operator multiplies by inv_scale in the computation type, float32 for float16 and bfloat16, and "
    "rounds once; an inv_scale of 1 keeps the values, but quiets signalling NaNs of 16 bits; inf times 0 is NaN",
    operators=True,
)
def values_are_multiplied_by_the_inverse(case: Case) -> None:
    inverse = 1 / 3000  # a power of two would hide a division
    for dtype in operator_dtypes(case):
        values = gradient(case, 4097, dtype)
        check_unscale(case, [values.clone()], inverse)
        check_unscale(case, [values], 1.0)
        values = torch.tensor([math.inf, -math.inf, 2.0, -0.0], dtype=dtype, device=case.device)
        unscale(case, [values], 0.0)
        case.equal(values.tolist(), [math.nan, math.nan, 0.0, -0.0], f"{dtype}: inf, -inf, 2, -0 times 0")
    values = case.tensor([1.0, 3.0], DOUBLE)
    unscale(case, [values], 0.1)
    case.equal(values.tolist(), [0.10000000149011612, 0.30000000447034836], "float64 times float32(0.1)")
    half = case.tensor([2049.0, 60000.0, 1.0]).half()
    unscale(case, [half], 1 / 3)
    case.equal(half.tolist(), [682.5, 20000.0, 0.333251953125], "float16 times float32(1/3)")
    for dtype in scaler_dtypes(case) if case.scaler_class is not None else ():
        check_scaler(case, [gradient(case, 129, dtype)], 3000.0)
        check_scaler(case, [gradient(case, 4097, dtype), gradient(case, 17, dtype)], 3000.0)
        check_scaler(case, [gradient(case, 33, dtype)], 1.0)
    for size in (1, 64, 4097) if case.device.type == "cpu" else ():
        _check_signalling_nans(case, size)


def _check_signalling_nans(case: Case, size: int) -> None:
    """With an inverse of 1: kept to the bit where the computation type is the dtype, else quieted on the way."""
    kept = {FLOAT: (torch.int32, 0x7FA00001), DOUBLE: (torch.int64, 0x7FF4000000000001)}
    for dtype, (word, bits) in kept.items():
        values = torch.full((size,), bits, dtype=word, device=case.device)
        unscale(case, [values.view(dtype)], 1.0)
        case.true(bool((values == bits).all()), f"{dtype}: a signalling NaN among {size} is as it was")
    quieted = {HALF: (0x7D01, 0x7E00), BFLOAT: (0x7FA1, 0x7FC0)}
    for dtype, (bits, quiet) in quieted.items():
        values = torch.full((size,), bits, dtype=torch.int16, device=case.device)
        unscale(case, [values.view(dtype)], 1.0)
        case.true(
            bool(((values & quiet) == quiet).all()), f"{dtype}: a signalling NaN among {size} has become a quiet one"
        )


@behaviour(
    "S13.3",
    "The unscale operator looks for inf and NaN in its input, in the range of the dtype: an overflow by its own "
    "multiplication raises no flag",
    operators=True,
)
def the_input_is_tested(case: Case) -> None:
    for dtype in operator_dtypes(case):
        largest = torch.finfo(dtype).max
        on_gpu_doubles = dtype == DOUBLE and case.device.type == "cuda"  # narrowed to float32 there
        for size in (1, 17, 1025, 4097) if not on_gpu_doubles else ():
            values = torch.full((size,), largest, dtype=dtype, device=case.device)
            values[size // 2] = -largest
            check_unscale(case, [values.clone()], 0.5)
            check_unscale(case, [values], 4.0)
            case.true(bool(values.isinf().all()), f"{dtype}: the largest value times 4 is inf")
        check_unscale(case, [torch.full((3,), math.inf, dtype=dtype, device=case.device)], 0.0, found=True)
        check_unscale(case, [torch.ones(3, dtype=dtype, device=case.device)], math.inf)
        check_unscale(case, [torch.ones(3, dtype=dtype, device=case.device)], math.nan)
    values = case.tensor([60000.0], HALF)
    case.equal(unscale(case, [values], 4.0), case.tensor(0.0), "found_inf of float16 60000 times 4")
    case.equal(values.tolist(), [math.inf], "float16 60000 times 4")
    if case.device.type != "cuda":
        check_unscale(case, [case.tensor([1e300, -1e300], DOUBLE)], 0.25)
    if case.scaler_class is not None:
        check_scaler(case, [case.tensor([3e38, 1.0])], 0.25)
        check_scaler(case, [case.tensor([1.0, math.inf])], 0.25, found=True)
        if case.device.type != "cuda":
            check_scaler(case, [case.tensor([1e300, 1.0], DOUBLE)], 4.0)


@behaviour(
    "S13.4",
    "The unscale operator stores 1.0 into found_inf, whatever it held, for a non-finite value at any place in a "
    "gradient of any size and stride, and else does not touch it",
    operators=True,
)
def the_flag_is_stored_or_left_alone(case: Case) -> None:
    ones = [torch.ones(size, device=case.device) for size in (5, 4097, 64)]
    for found_inf in (0.0, 7.0, -1.0, math.inf, math.nan):
        flag = unscale(case, [g.clone() for g in ones], 0.5, found_inf)
        case.equal(flag, case.tensor(found_inf), f"found_inf {found_inf} after finite gradients")
        flag = unscale(case, [case.tensor([1.0, math.inf])], 0.5, found_inf)
        case.equal(flag, case.tensor(1.0), f"found_inf {found_inf} after an inf")
    for dtype in operator_dtypes(case):
        for size in SIZES[1:]:
            for values in planted(case, size, dtype):
                check_unscale(case, [values], 0.25, found=True)
        for bad in NON_FINITE:
            strided = torch.ones((1000, 3), dtype=dtype, device=case.device)
            strided[999, 1] = bad
            check_unscale(case, [strided[:, 1].clone(), strided[:, 2]], 0.5, found=True)
            check_unscale(case, [strided[:, 0], strided[:, 1]], 0.5, found=True)
            check_unscale(case, [strided.t()], 0.5, found=True)
        for lengths in ((3, 3, 3), (1, 4097, 65), (4097, 33, 1)):
            for which in range(3):
                listed = [torch.ones(n, dtype=dtype, device=case.device) for n in lengths]
                listed[which][-1] = NON_FINITE[which]
                check_unscale(case, listed, 0.25, found=True)
        for listed in many(case, dtype):
            check_unscale(case, listed, 0.25, found=True)
    if case.scaler_class is not None:
        _check_the_flag_of_a_scaler(case)


def _check_the_flag_of_a_scaler(case: Case) -> None:
    for dtype in scaler_dtypes(case):
        for size in SIZES[1:]:
            for values in planted(case, size, dtype):
                check_scaler(case, [values], 4.0, found=True)
        for lengths in ((3, 3, 3), (1, 4097, 65), (4097, 33, 1)):
            for which in range(3):
                listed = [torch.ones(n, dtype=dtype, device=case.device) for n in lengths]
                listed[which][-1] = NON_FINITE[which]
                check_scaler(case, listed, 4.0, found=True)
        for listed in many(case, dtype):
            check_scaler(case, listed, 4.0, found=True)
    scaler = case.ready_scaler(4.0)
    for value, scale in ((math.inf, 2.0), (4.0, 2.0), (math.nan, 1.0), (4.0, 1.0)):
        scaler.step(case.sgd([1.0, 1.0], [value]))
        scaler.update()
        case.equal(scaler.get_scale(), scale, f"scale after an update with a gradient of {value}")


@behaviour(
    "S13.5",
    "The unscale operator leaves the version counters of gradients, found_inf and inv_scale, and writes to leaves "
    "that require grad, to results and to inference tensors without an error",
    operators=True,
)
def version_counters_stay(case: Case) -> None:
    leaf = torch.nn.Parameter(case.tensor([8.0, 4.0]))
    source = torch.nn.Parameter(case.tensor([8.0, 4.0]))
    result = source * 1.0
    with torch.inference_mode():
        inference = case.tensor([8.0, 4.0])
    for size in (1, 2, 33, 4097):
        plain = torch.full((size,), 8.0, device=case.device)
        found_inf, inverse = case.tensor(0.0), case.tensor(0.25)
        bad = torch.full((size,), math.nan, device=case.device)
        counted = (plain, leaf, result, bad, found_inf, inverse)
        before = [tensor._version for tensor in counted]
        case.operators.unscale([plain, leaf, result, inference, bad], found_inf, inverse)
        case.equal([tensor._version for tensor in counted], before, "versions of gradients, found_inf and inv_scale")
        case.equal(found_inf, case.tensor(1.0), "found_inf")
        case.equal(plain, torch.full((size,), 2.0, device=case.device), "a plain gradient")
    expected = [8.0 / 4**4, 4.0 / 4**4]
    case.equal([leaf.tolist(), result.tolist(), inference.tolist()], [expected] * 3, "leaf, result, inference tensor")
    case.true(leaf.requires_grad and result.requires_grad and inference.is_inference(), "all stay what they are")
    torch.autograd.grad(result.square().sum(), source)  # autograd does not notice that a saved tensor has changed


@behaviour(
    "S13.6",
    "The unscale operator takes float16, float32 and float64 gradients of every size, with results right to the bit",
    operators=True,
    proven_on=("cpu",),
)
def half_float_and_double_are_supported(case: Case) -> None:
    for dtype in (HALF, FLOAT, DOUBLE):
        _check_all_sizes(case, dtype)


@behaviour(
    "S13.7",
    "On the CPU the unscale operator takes bfloat16 gradients of every size, with results right to the bit",
    operators=True,
    proven_on=("cpu",),
)
def bfloat16_is_supported(case: Case) -> None:
    _check_all_sizes(case, BFLOAT)
