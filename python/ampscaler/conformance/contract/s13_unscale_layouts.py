"""Section 13.1: which layouts of a gradient the unscale operator, and a scaler, take, and which they refuse."""

from __future__ import annotations

import math
import re
from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.contract.s13_tools import (
    NON_FINITE,
    check_bits,
    check_scaler,
    check_unscale,
    gradient,
    product,
    unscale,
)
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import operator_dtypes, scaler_dtypes
from ampscaler.conformance.tools_texts import ONE_PLACE


@behaviour(
    "S13.12",
    "The unscale operator takes gradients of size 0 and of no dimensions like any others",
    operators=True,
    proven_on=("cpu",),
)
def empty_and_scalar_gradients(case: Case) -> None:
    for dtype in operator_dtypes(case):
        empty = torch.empty((0,), dtype=dtype, device=case.device)
        case.equal(unscale(case, [empty], 0.25, 7.0), case.tensor(7.0), "found_inf of an empty gradient")
        check_unscale(case, [empty, torch.empty((3, 0, 2), dtype=dtype, device=case.device)], 0.25)
        for value in (6.0, -0.0, *NON_FINITE):
            bad = not math.isfinite(value)
            check_unscale(case, [case.tensor(value, dtype)], 1 / 3000, found=bad)
            check_unscale(case, [empty, case.tensor(value, dtype), empty, case.tensor([[1.0]], dtype)], 0.25, found=bad)
    for dtype in scaler_dtypes(case) if case.scaler_class is not None else ():
        empty = torch.empty((0,), dtype=dtype, device=case.device)
        check_scaler(case, [empty], 4.0)
        check_scaler(case, [empty, case.tensor(6.0, dtype), empty.view(3, 0)], 3000.0)
        for value in NON_FINITE:
            check_scaler(case, [empty, case.tensor(value, dtype), case.tensor([1.0], dtype)], 4.0, found=True)


@behaviour(
    "S13.13",
    "The unscale operator writes through transposed, sliced and channels-last gradients; the gaps between their "
    "elements are neither changed nor looked at",
    operators=True,
    proven_on=("cpu",),
)
def strided_gradients_are_written_through(case: Case) -> None:
    for dtype in operator_dtypes(case):
        for number, view in enumerate(_views(torch.zeros(6, 10, 8))):
            _check_view(case, dtype, number, view, by_scaler=False)
            if case.scaler_class is not None and dtype in scaler_dtypes(case):
                _check_view(case, dtype, number, view, by_scaler=True)
        _check_slices_from_an_odd_element(case, dtype)
        image = gradient(case, 2 * 3 * 5 * 7, dtype).view(2, 3, 5, 7).contiguous(memory_format=torch.channels_last)
        check_unscale(case, [image], 1 / 3000)
        case.true(image.is_contiguous(memory_format=torch.channels_last), "channels-last stays so")
        long = gradient(case, 200002, dtype)
        check_unscale(case, [long[::2], long[1::2]], 0.5)
        check_unscale(case, [long.view(-1, 2).t()], 1 / 3000)


def _check_slices_from_an_odd_element(case: Case, dtype: torch.dtype) -> None:
    """Contiguous, but not aligned to a vector: the elements before the first whole vector are as good as any."""
    for offset in (1, 2, 3, 5, 7, 9):
        for place in (0, 1, 40, -1):
            for bad in NON_FINITE:
                base = torch.ones(129, dtype=dtype, device=case.device)
                base[offset:][place] = bad
                check_unscale(case, [base[offset:]], 0.25, found=True)
                base = torch.ones(129, dtype=dtype, device=case.device)
                base[offset - 1] = bad
                check_unscale(case, [base[offset:]], 0.25)


def _views(base: torch.Tensor) -> list[torch.Tensor]:
    """Views of 480 elements without overlap."""
    return [
        base.transpose(0, 2),
        base[:, 0:10:3],
        base[:, :, 3],
        base[2, 1, 0],
        base[1:2],
        base.permute(2, 0, 1),
        base.as_strided((4, 3), (20, 5)),
        base[1, 2:5, 1:8:2],
        base.view(480)[1::2],
        base.view(480)[7:470],
    ]


def _check_view(case: Case, dtype: torch.dtype, number: int, like: torch.Tensor, by_scaler: bool) -> None:
    layout = like.shape, like.stride(), like.storage_offset()
    for bad in (None, math.nan) if by_scaler else (None, *NON_FINITE):
        base = gradient(case, 480, dtype)
        inside = torch.zeros(480, dtype=torch.bool, device=case.device)
        inside.as_strided(*layout).fill_(True)
        base[~inside] = math.nan if number % 2 else math.inf
        view = base.as_strided(*layout)
        if bad is not None:
            view.view(()).fill_(bad) if view.dim() == 0 else view[(-1,) * view.dim()].fill_(bad)
        expected = torch.where(inside, product(base, 1 / 3000), base)
        if by_scaler:
            check_scaler(case, [view], 3000.0, found=bad is not None)
        else:
            check_unscale(case, [view], 1 / 3000, found=bad is not None)
        check_bits(case, base, expected, f"view {number}, {dtype}: the memory around it")


@behaviour(
    "S13.14",
    "The unscale operator raises RuntimeError for an expanded gradient that repeats elements, also where inv_scale "
    "is 1",
    operators=True,
    proven_on=("cpu",),
)
def expanded_gradients_are_refused(case: Case) -> None:
    for dtype in operator_dtypes(case):
        for inverse in (0.25, 1.0):
            one = case.tensor([8.0, math.inf, 3.0], dtype)
            for expanded in (one[:1].expand(4), one.expand(2, 3), one.view(3, 1).expand(3, 5)):
                flag = case.tensor(0.0)
                case.raises(RuntimeError, ONE_PLACE, case.operators.unscale, [expanded], flag, case.tensor(inverse))
                case.equal(one.tolist(), [8.0, math.inf, 3.0], "the elements")
                case.equal(flag, case.tensor(0.0), "found_inf")


@behaviour(
    "S13.15",
    "The unscale operator takes an expanded gradient that repeats nothing",
    operators=True,
    proven_on=("cpu",),
)
def expanded_without_repeats(case: Case) -> None:
    for dtype in operator_dtypes(case):
        one = case.tensor([8.0, 4.0, 3.0], dtype)
        check_unscale(case, [one[:1].expand(1), one[1:2].expand(1, 1, 1)], 0.25)
        case.equal(one.tolist(), [2.0, 1.0, 3.0], "elements after both were multiplied once")
        check_unscale(case, [one.expand(1, 3)], 0.5)
        case.equal(one.tolist(), [1.0, 0.5, 1.5], "elements of a row expanded to itself")
        check_unscale(case, [one.as_strided((1, 3), (0, 1))], 0.5)
        check_unscale(case, [one[:1].expand(0), one.expand(0, 3)], 0.5)
        case.equal(one.tolist(), [0.5, 0.25, 0.75], "elements after an expansion to size 0")


@behaviour(
    "S13.16",
    "The unscale operator multiplies elements that overlapping gradients share once per mention, without an error",
    operators=True,
    proven_on=("cpu",),
)
def shared_elements_are_multiplied_repeatedly(case: Case) -> None:
    for dtype in operator_dtypes(case):
        ones = case.tensor([1.0] * 8, dtype)
        unscale(case, [ones.as_strided((3, 4), (2, 1))], 0.5)
        case.equal(ones.tolist(), [0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.5, 0.5], "rows of 4 that start every 2 elements")
        ones = case.tensor([1.0] * 8, dtype)
        unscale(case, [ones[:5], ones[3:], ones[4:5]], 0.5)
        case.equal(ones.tolist(), [0.5, 0.5, 0.5, 0.25, 0.125, 0.5, 0.5, 0.5], "views that overlap")
        same = case.tensor([16.0, 4.0], dtype)
        case.equal(unscale(case, [same, same], 0.25), case.tensor(0.0), "found_inf")
        case.equal(same.tolist(), [1.0, 0.25], "one gradient listed twice")


def _foreign_layouts(case: Case) -> list[tuple[str, torch.Tensor, str]]:
    """Name, gradient, and how torch's dispatcher calls its backend; "" where it does not."""
    dense, device = torch.ones(2, 2, device=case.device), case.device.type.upper()
    found = [
        ("COO", dense.to_sparse(), f"Sparse{device}"),
        ("CSR", dense.to_sparse_csr(), f"SparseCsr{device}"),
        ("BSR", dense.to_sparse_bsr((1, 1)), f"SparseCsr{device}"),
        ("nested", torch.nested.nested_tensor([dense, dense[:1]]), f"NestedTensor{device}"),
        ("jagged", torch.nested.nested_tensor([dense, dense[:1]], layout=torch.jagged), ""),
        ("quantized", torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8), f"Quantized{device}"),
    ]
    mkldnn: Any = torch.backends.mkldnn
    if case.device.type == "cpu" and mkldnn.is_available():
        found.append(("mkldnn", dense.to_mkldnn(), "MkldnnCPU"))
    return found


@behaviour(
    "S13.17",
    "The unscale operator raises NotImplementedError for COO, CSR, BSR, mkldnn, nested and quantized gradients, "
    "alone or in a list with dense ones",
    operators=True,
    proven_on=("cpu",),
)
def other_layouts_are_refused(case: Case) -> None:
    for name, foreign, backend in _foreign_layouts(case):
        operator = case.operators.names[0]
        start = f"^Could not run '{operator}' with arguments from the '{backend}' backend"
        known = re.compile(start if backend else re.escape(operator.replace("::", ".")))
        text = known if case.operators.is_aten else None  # the dispatcher's text names its operator
        dense = case.tensor([8.0])
        for listed in ([foreign], [dense, foreign], [foreign, dense]):
            arguments = (listed, case.tensor(0.0), case.tensor(0.25))
            case.raises(NotImplementedError, text, case.operators.unscale, *arguments)
        case.equal(dense.tolist(), [8.0], f"a dense gradient beside a {name} one")


@behaviour(
    "S13.18",
    "The unscale operator raises RuntimeError for a lazily negated gradient, which stays as it is",
    operators=True,
    proven_on=("cpu",),
)
def negated_views_are_refused(case: Case) -> None:
    text = re.compile("^ fallback doesn't currently support mutable TensorLists with negation inputs")
    values, dense = case.tensor([8.0, 4.0]), case.tensor([8.0])
    negated = torch._neg_view(values)
    for listed in ([negated], [dense, negated]):
        arguments = (listed, case.tensor(0.0), case.tensor(0.25))
        case.raises(RuntimeError, text if case.operators.is_aten else None, case.operators.unscale, *arguments)
    case.equal([values.tolist(), dense.tolist()], [[8.0, 4.0], [8.0]], "values")


@behaviour(
    "S13.19",
    "With any argument on meta a whole call of the unscale operator is a silent no-op, whatever the other arguments "
    "are",
    operators=True,
    proven_on=("cpu",),
)
def meta_arguments_make_a_no_op(case: Case) -> None:
    meta = torch.device("meta")
    for where in ((meta, None, None), (None, meta, None), (None, None, meta), (meta, meta, meta)):
        values, bad = case.tensor([8.0, 4.0]), case.tensor([math.inf])
        found_inf, inverse = case.tensor(0.0).to(where[1]), case.tensor(0.25).to(where[2])
        mixed, refused = case.tensor([1.0]).to(where[0]), case.tensor([1], torch.int64).to(where[0])
        for listed in ([mixed, values, bad], [values, bad, mixed], [values, refused, mixed]):
            case.operators.unscale(listed, found_inf, inverse)
        case.equal([values.tolist(), bad.tolist()], [[8.0, 4.0], [math.inf]], "gradients in memory")
        if where[1] is None:
            case.equal(found_inf, case.tensor(0.0), "found_inf")
