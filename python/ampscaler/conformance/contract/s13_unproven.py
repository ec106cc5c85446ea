"""Section 13: what is believed of the operators on CUDA and has not been seen; differences are findings."""

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
    check_unscale,
    gradient,
    unscale,
)
from ampscaler.conformance.contract.s13_unscale_lists import check_refused_dtypes
from ampscaler.conformance.contract.s13_update import update
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools_texts import no_kernel


@behaviour(
    "U13.1",
    "On CUDA the unscale operator takes a float64 beyond the range of float32 for inf",
    operators=True,
    proven_on=(),
    only_on="cuda",
)
def doubles_are_narrowed(case: Case) -> None:
    for value, found in ((1e300, 1.0), (-1e39, 1.0), (3.4e38, 0.0), (-3.4e38, 0.0)):
        for size in (1, 33, 4097):
            values = torch.ones(size, dtype=DOUBLE, device=case.device)
            values[-1] = value
            case.equal(unscale(case, [values], 0.5), case.tensor(found), f"found_inf for {value}, last of {size}")
            case.equal(values[-1].item(), value * 0.5, f"{value} times 0.5")


@behaviour(
    "U13.2",
    "On CUDA the unscale operator takes float16, float32 and float64 gradients",
    operators=True,
    proven_on=(),
    only_on="cuda",
)
def half_float_and_double_on_cuda(case: Case) -> None:
    for dtype in (HALF, FLOAT, DOUBLE):
        for inverse in INVERSES:
            for size in (1, 33, 4097, 100001):
                check_unscale(case, [gradient(case, size, dtype)], inverse)
            check_unscale(case, [case.tensor([1.0, math.nan], dtype)], inverse, found=True)


@behaviour(
    "U13.3",
    "On CUDA torch's unscale operator raises NotImplementedError for bfloat16 gradients",
    operators=True,
    proven_on=(),
    only_on="cuda",
)
def bfloat16_is_missing(case: Case) -> None:
    values = case.tensor([8.0, 4.0], BFLOAT)
    if case.operators.is_aten:
        case.raises(NotImplementedError, no_kernel("cuda", "BFloat16"), unscale, case, [values], 0.25)
    else:
        check_unscale(case, [values], 0.25)


@behaviour(
    "U13.4",
    "On CUDA the unscale operator raises NotImplementedError for complex, float8, integer and bool gradients",
    operators=True,
    proven_on=(),
    only_on="cuda",
)
def other_dtypes_are_refused_on_cuda(case: Case) -> None:
    check_refused_dtypes(case)


@behaviour(
    "U13.5",
    "On CUDA one call of the unscale operator takes gradients of several dtypes",
    operators=True,
    proven_on=(),
    only_on="cuda",
)
def dtypes_may_be_mixed_on_cuda(case: Case) -> None:
    for size in (1, 33, 4097):
        check_unscale(case, [case.tensor([3.0] * size, dtype) for dtype in (HALF, FLOAT, DOUBLE, HALF)], 1 / 3000)


@behaviour(
    "U13.6",
    "The unscale operator raises RuntimeError for gradients on the CPU with a found_inf on CUDA, and the reverse",
    operators=True,
    proven_on=(),
    only_on="cuda",
)
def devices_may_not_be_mixed(case: Case) -> None:
    there, here = case.tensor([8.0]), torch.tensor([8.0])
    for values, found_inf in ((here, case.tensor(0.0)), (there, torch.tensor(0.0))):
        case.raises(RuntimeError, None, case.operators.unscale, [values], found_inf, found_inf + 0.25)
        case.equal(values.tolist(), [8.0], "the gradient")


@behaviour(
    "U13.7",
    "On CUDA the update operator narrows the growth interval to 32 bits",
    operators=True,
    proven_on=(),
    only_on="cuda",
)
def the_interval_is_narrowed(case: Case) -> None:
    case.equal(update(case, 8.0, 1, 0.0, interval=2**32 + 2), [16.0, 0], "scale and tracker at interval 2**32 + 2")


@behaviour(
    "U13.8",
    "A captured CUDA graph keeps the factors and the interval that it was captured with",
    operators=True,
    proven_on=(),
    only_on="cuda",
)
def a_graph_keeps_its_numbers(case: Case) -> None:
    scale, tracker, found_inf = case.tensor(8.0), case.tensor(0, torch.int32), case.tensor(0.0)
    numbers = [2.0, 0.5, 1]
    case.operators.update(scale, tracker, found_inf, *numbers)  # warms up
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        case.operators.update(scale, tracker, found_inf, *numbers)
    numbers[:] = [4.0, 0.25, 5]
    for flag, expected in ((0.0, 32.0), (1.0, 16.0), (0.0, 32.0)):
        found_inf.fill_(flag)
        graph.replay()
        case.equal(
            [scale.item(), tracker.item()], [expected, 0], f"scale and tracker after a replay with found_inf {flag}"
        )
