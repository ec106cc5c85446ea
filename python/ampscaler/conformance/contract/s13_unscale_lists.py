"""Section 13.1: which arguments the unscale operator takes, in which order it checks them, what a failure leaves."""

from __future__ import annotations

import math
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.contract.s13_tools import BFLOAT, HALF, check_bits, check_unscale, gradient, product
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import operator_dtypes
from ampscaler.conformance.tools_texts import ONE_PLACE, no_kernel

_REFUSED = {
    torch.complex32: "ComplexHalf",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
    torch.float8_e4m3fn: "Float8_e4m3fn",
    torch.float8_e5m2: "Float8_e5m2",
    torch.float8_e4m3fnuz: "Float8_e4m3fnuz",
    torch.float8_e5m2fnuz: "Float8_e5m2fnuz",
    torch.float8_e8m0fnu: "Float8_e8m0fnu",
    torch.int8: "Char",
    torch.uint8: "Byte",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.bool: "Bool",
    torch.uint16: "UInt16",
    torch.uint32: "UInt32",
    torch.uint64: "UInt64",
}


def check_refused_dtypes(case: Case) -> None:
    """Every other dtype raises, whatever its size and the inverse, and neither gradient nor flag change."""
    for dtype, name in _REFUSED.items():
        text = no_kernel(case.device.type, name)
        for size in (2, 0, 100):
            for inverse in (1.0, 0.5):
                values = torch.ones(size, device=case.device).to(dtype)
                before = values.clone()
                flag = case.tensor(0.0)
                case.raises(NotImplementedError, text, case.operators.unscale, [values], flag, case.tensor(inverse))
                case.equal(flag, case.tensor(0.0), "found_inf")
                case.true(values.view(torch.uint8).equal(before.view(torch.uint8)), f"{name} values stay as they were")


@behaviour(
    "S13.8",
    "The unscale operator raises NotImplementedError for complex, float8, integer and bool gradients, also of size "
    "0 and where inv_scale is 1",
    operators=True,
    proven_on=("cpu",),
)
def other_dtypes_are_refused(case: Case) -> None:
    check_refused_dtypes(case)


@behaviour(
    "S13.9",
    "The unscale operator returns before any check for an empty list, even with an invalid found_inf and inv_scale",
    operators=True,
    proven_on=("cpu",),
)
def an_empty_list_is_never_checked(case: Case) -> None:
    invalid = case.tensor([1, 2, 3], torch.int64)
    case.operators.unscale([], invalid, case.tensor([]))
    if case.operators.is_aten:
        torch._amp_foreach_non_finite_check_and_unscale_([], invalid, case.tensor([]))
    case.equal(invalid.tolist(), [1, 2, 3], "found_inf")
    flag = case.tensor(7.0)
    case.operators.unscale([], flag, case.tensor(0.25))
    case.equal(flag, case.tensor(7.0), "found_inf")


@behaviour(
    "S13.10",
    "The unscale operator takes a list or tuple of gradients; a generator, an element that is no tensor, or an "
    "inv_scale that is a float raises, TypeError from torch's Python function, and nothing is written",
    operators=True,
    proven_on=("cpu",),
)
def lists_and_tuples_of_tensors_only(case: Case) -> None:
    for kind in (list, tuple):
        values = case.tensor([8.0, 4.0])
        result = case.operators.unscale(kind([values]), case.tensor(0.0), case.tensor(0.25))
        case.equal(values.tolist(), [2.0, 1.0], f"a {kind.__name__} of one gradient")
        case.true(not case.operators.is_aten or result is None, "torch's operator returns None")
    values, flag, inverse = case.tensor([8.0, 4.0]), case.tensor(0.0), case.tensor(0.25)
    wrong: list[tuple[Any, Any, Any]] = [
        ([values, 3.0], flag, inverse),
        ([values, None], flag, inverse),
        (values, flag, inverse),
        (None, flag, inverse),
        ([values], flag, 0.25),
        ([values], 0.0, inverse),
    ]
    for arguments in wrong:
        case.raises(RuntimeError, None, case.operators.unscale, *arguments)  # what torch.ops raises for a wrong type
        if case.operators.is_aten:
            case.raises(TypeError, None, torch._amp_foreach_non_finite_check_and_unscale_, *arguments)
    if case.operators.is_aten:
        generator: Any = (tensor for tensor in [values])
        case.raises(TypeError, None, torch._amp_foreach_non_finite_check_and_unscale_, generator, flag, inverse)
    case.equal([values.tolist(), flag.item()], [[8.0, 4.0], 0.0], "gradient and found_inf")


@behaviour(
    "S13.11",
    "One call of the unscale operator takes gradients of several dtypes, with one found_inf for all",
    operators=True,
    proven_on=("cpu",),
)
def dtypes_may_be_mixed(case: Case) -> None:
    for size in (1, 33, 1025):
        check_unscale(case, [gradient(case, size, dtype) for dtype in (*operator_dtypes(case), HALF)], 1 / 3000)
        for which in range(len(operator_dtypes(case))):
            listed = [torch.ones(size, dtype=dtype, device=case.device) for dtype in operator_dtypes(case)]
            listed[which][-1] = math.inf
            check_unscale(case, listed, 0.25, found=True)


@behaviour(
    "S13.20",
    "The unscale operator raises RuntimeError, before any work, unless inv_scale and then found_inf have one "
    "element, of any shape, and inv_scale and then found_inf are float32",
    operators=True,
)
def the_scalars_are_checked_in_order(case: Case) -> None:
    two, none, good = case.tensor([1.0, 1.0]), case.tensor([]), case.tensor(0.25)
    double, half, integer = case.tensor(1.0, torch.float64), case.tensor(1.0, HALF), case.tensor(1, torch.int64)
    values = case.tensor([8.0, math.inf])
    refused = [
        (two.double(), two, "inv_scale must be a 1-element tensor."),
        (none, none, "inv_scale must be a 1-element tensor."),
        (double, two.long(), "found_inf must be a 1-element tensor."),
        (good, none, "found_inf must be a 1-element tensor."),
        (double, double, "inv_scale must be a float tensor."),
        (half, good, "inv_scale must be a float tensor."),
        (integer, good, "inv_scale must be a float tensor."),
        (good, double, "found_inf must be a float tensor."),
        (good, half, "found_inf must be a float tensor."),
        (good, case.tensor(True, torch.bool), "found_inf must be a float tensor."),
    ]
    for inverse, found_inf, text in refused:
        for listed in ([values], [integer, values]):  # a refused dtype is found later
            before = found_inf.tolist()
            case.raises(RuntimeError, text, case.operators.unscale, listed, found_inf, inverse)
            case.equal([values.tolist(), found_inf.tolist()], [[8.0, math.inf], before], "gradient and found_inf")
    for shape in ((1,), (1, 1), (1, 1, 1)):
        values, found_inf = case.tensor([8.0, math.inf]), case.tensor(0.0).reshape(shape)
        case.operators.unscale([values], found_inf, case.tensor(0.25).reshape(shape))
        case.equal(values.tolist(), [2.0, math.inf], f"gradient with scalars of shape {shape}")
        case.equal(found_inf, case.tensor(1.0).reshape(shape), f"found_inf of shape {shape}")


@behaviour(
    "S13.21",
    "Where the unscale operator refuses a gradient, those before it are multiplied already, and those after it are not",
    operators=True,
    proven_on=("cpu",),
)
def a_failure_leaves_the_first_gradients_scaled(case: Case) -> None:
    dtype = (NotImplementedError, None)
    overlap = (RuntimeError, ONE_PLACE)
    for (kind, text), bad in (
        (dtype, case.tensor([1, 2], torch.int64)),
        (dtype, case.tensor([1j], torch.complex64)),
        (overlap, case.tensor([1.0]).expand(3)),
        (overlap, case.tensor([1.0], BFLOAT).expand(3)),
    ):
        for size in (3, 1025, 4097):
            first, second = gradient(case, size, torch.float32), gradient(case, size, HALF)
            first[-1] = math.nan
            last = gradient(case, size, torch.float32)
            expected = product(first, 0.25), product(second, 0.25), last.clone()
            flag = case.tensor(0.0)
            case.raises(kind, text, case.operators.unscale, [first, second, bad, last], flag, case.tensor(0.25))
            for got, right, what in zip((first, second, last), expected, ("first", "second", "last"), strict=True):
                check_bits(case, got, right, f"the {what} of four gradients, the third of which was refused")
            case.equal(flag, case.tensor(1.0), "found_inf, for the NaN in the first gradient")
