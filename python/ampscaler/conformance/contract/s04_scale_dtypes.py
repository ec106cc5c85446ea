"""Section 4: the dtype, the rounding and the layout of what scale() makes of a tensor."""

from __future__ import annotations

import math
import re

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu)
SINGLE_3000_3 = 3000.300048828125  # 3000.3 as a float32


@behaviour(
    "S4.3",
    "scale() of a 0-dim float16, bfloat16 or float32 tensor gives float32: the input's dtype is not restored",
)
def a_scalar_becomes_float32(case: Case) -> None:
    scaler = case.ready_scaler(65536.0)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        case.equal(scaler.scale(case.tensor(1.0, dtype)), case.tensor(65536.0), f"product of {dtype}")
    scaler = case.ready_scaler(3000.3)
    # 0.1 is 0.0999755859375 in float16, 0.10009765625 in bfloat16; 24 bits of the product are kept
    case.equal(scaler.scale(case.tensor(0.1, torch.float16)), case.tensor(0.0999755859375 * SINGLE_3000_3))
    case.equal(scaler.scale(case.tensor(0.1, torch.bfloat16)), case.tensor(0.10009765625 * SINGLE_3000_3))


@behaviour("S4.4", "scale() of a float64 tensor, 0-dim or not, gives float64; the product is formed in float64")
def float64_stays_float64(case: Case) -> None:
    scaler = case.ready_scaler(0.1)
    third = (1 / 3) * 0.10000000149011612  # 0.1 as a float32
    case.equal(scaler.scale(case.tensor(1 / 3, torch.float64)), case.tensor(third, torch.float64), "0-dim")
    case.equal(
        scaler.scale(case.tensor([1 / 3, 1e300], torch.float64)),
        case.tensor([third, 1e300 * 0.10000000149011612], torch.float64),
    )


@behaviour(
    "S4.5",
    "On a CPU scale() of an n-dim float16 or bfloat16 tensor keeps the dtype: it multiplies in float32 by the "
    "unrounded scale and rounds once",
    proven_on=("cpu",),
)
def half_tensors_are_rounded_once(case: Case) -> None:
    scaler = case.ready_scaler(65536.0)
    halves = case.tensor([0.5, 1.0, 0.0, -1.0], torch.float16)
    case.equal(scaler.scale(halves), case.tensor([32768.0, INF, 0.0, -INF], torch.float16), "float16 at 2**16")
    scaler = case.ready_scaler(100000.1)
    case.equal(
        scaler.scale(case.tensor([1.0], torch.bfloat16)), case.tensor([99840.0], torch.bfloat16), "bfloat16 at 100000.1"
    )
    scaler = case.ready_scaler(3000.3)
    for dtype in (torch.float16, torch.bfloat16):
        values = torch.randn(500, dtype=torch.float64).to(dtype)
        product = (values.double() * SINGLE_3000_3).float().to(dtype)
        rounded_scale = (values.double() * torch.tensor(SINGLE_3000_3).to(dtype).double()).to(dtype)
        case.true(not torch.equal(product, rounded_scale), "rounding the scale to the dtype would be seen")
        case.equal(scaler.scale(values.to(case.device)), product.to(case.device), f"products of {dtype}")


@behaviour(
    "U4.1",
    "On CUDA an n-dim float16 tensor meets the scale rounded to float16: from 65520 on it is inf, and 0 gives NaN",
    proven_on=(),
    only_on="cuda",
)
def cuda_rounds_the_scale_to_float16(case: Case) -> None:
    halves = case.tensor([0.5, 1.0, 0.0], torch.float16)
    case.equal(case.ready_scaler(65520.0).scale(halves), case.tensor([INF, INF, math.nan], torch.float16), "at 65520")
    case.equal(
        case.ready_scaler(65519.0).scale(halves), case.tensor([32752.0, 65504.0, 0.0], torch.float16), "at 65519"
    )


@behaviour("S4.6", "scale() of an integer or bool tensor gives float32")
def integers_become_float32(case: Case) -> None:
    scaler = case.ready_scaler(2.5)
    for dtype in INTEGERS:
        case.equal(scaler.scale(case.tensor([1, 3], dtype)), case.tensor([2.5, 7.5]), f"product of {dtype}")
        case.equal(scaler.scale(case.tensor(3, dtype)), case.tensor(7.5), f"product of 0-dim {dtype}")
    case.equal(scaler.scale(case.tensor([True, False], torch.bool)), case.tensor([2.5, 0.0]), "product of bool")
    case.equal(scaler.scale(case.tensor(True, torch.bool)), case.tensor(2.5), "product of 0-dim bool")


@behaviour("S4.7", "scale() of a complex64 tensor gives complex64, and so does that of a 0-dim complex32 one")
def complex_tensors_become_complex64(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    product = case.tensor([4 + 8j], torch.complex64)
    case.equal(scaler.scale(case.tensor([1 + 2j], torch.complex64)), product, "complex64")
    case.equal(scaler.scale(case.tensor(1 + 2j, torch.complex64)), product[0], "0-dim complex64")
    case.equal(scaler.scale(case.tensor(1 + 2j, torch.complex32)), product[0], "0-dim complex32")


@behaviour("S4.8", "scale() of a sparse COO tensor gives a sparse COO tensor of the same dtype")
def sparse_stays_sparse(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    for dtype in FLOATS:
        for indices in ([[0, 2]], [[2, 2]]):  # the second is not coalesced
            outputs = torch.sparse_coo_tensor(case.tensor(indices, torch.int64), case.tensor([1.0, 2.0], dtype), (3,))
            result = scaler.scale(outputs)
            case.equal(result.dtype, dtype, "dtype of the product")
            case.true(
                result.layout is torch.sparse_coo and result.shape == (3,), "the product is sparse, of the same shape"
            )
            dense = case.tensor([4.0, 0.0, 8.0] if indices == [[0, 2]] else [0.0, 0.0, 12.0], dtype)
            case.equal(result.to_dense(), dense, f"product of {dtype}")


@behaviour(
    "S4.9",
    "scale() of a float8 tensor raises NotImplementedError from the multiplication, of a 0-dim one RuntimeError "
    "from the promotion",
    proven_on=("cpu",),
)
def float8_is_refused(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    for dtype in FLOAT8:
        loss, name = case.tensor([1.0, 2.0]).to(dtype), str(dtype).removeprefix("torch.").capitalize()
        case.raises(NotImplementedError, re.compile(rf"^\"mul_.*\" not implemented for '{name}'$"), scaler.scale, loss)
        promotion = f"Promotion for Float8 Types is not supported, attempted to promote {name} and Float"
        case.raises(RuntimeError, promotion, scaler.scale, loss[0])
    case.equal(scaler.scale(case.tensor(1.0)), case.tensor(4.0), "a loss after the errors")


@behaviour(
    "S4.10",
    "scale() of a tensor without elements gives one of the same shape and floating dtype, and makes the scale",
)
def nothing_stays_nothing(case: Case) -> None:
    scaler = case.new_scaler(4.0)
    for dtype in FLOATS:
        for shape in ((0,), (3, 0)):
            result = scaler.scale(torch.empty(shape, dtype=dtype, device=case.device))
            case.equal(result, torch.empty(shape, dtype=dtype, device=case.device))
    scaler.unscale_(case.sgd([4.0]))  # raises unless the scale came into being
