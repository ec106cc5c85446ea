"""functional.unscale_and_clip: known values, float64 references, non-finite input, autograd, tracing."""

import math

import pytest
import torch
from torch._subclasses import FakeTensorMode

from ampscaler import _C
from ampscaler.functional import unscale_and_clip, unscale_gradients

INF, NAN = float("inf"), float("nan")
NORMS = [2.0, 1.0, 3.0, 10.0, INF, 0.0]


def test_known_values():
    gradients, norm, coefficient, found_inf = unscale_and_clip([torch.tensor([6.0, 8.0]), None], 2.0, 2.5)
    assert gradients[0].tolist() == [1.5, 2.0] and gradients[1] is None
    assert (norm.item(), coefficient.item(), found_inf.item()) == (5.0, 0.5, 0.0)
    for result in (norm, coefficient, found_inf):
        assert (result.dim(), result.dtype) == (0, torch.float32)


@pytest.mark.parametrize("scale", [3000.0, torch.tensor(3000.0), torch.tensor([3000.0], dtype=torch.float64)])
@pytest.mark.parametrize("max_norm", [INF, 1e6, torch.tensor(1e6), torch.tensor([0.0]), torch.tensor(NAN)])
def test_within_the_limit_they_are_the_unscaled_gradients(scale, max_norm):
    scaled = [torch.randn(1000), torch.randn(7).bfloat16(), torch.randn(3, 3).half()]
    gradients, _, coefficient, found_inf = unscale_and_clip(scaled, scale, max_norm)
    assert all(torch.equal(a, b) for a, b in zip(gradients, unscale_gradients(scaled, scale), strict=True))
    assert (coefficient.item(), found_inf.item()) == (1.0, 0.0)


@pytest.mark.parametrize("norm_type", NORMS)
@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_norm_and_coefficient_against_float64(norm_type, eps):
    scaled = [torch.randn(300), torch.randn(9, 7).bfloat16(), torch.randn(5).double(), torch.zeros(2), torch.ones(0)]
    true = [(g / 64.0).double() for g in scaled if g.numel()]
    expected = torch.nn.utils.get_total_norm(true, norm_type)
    limit = 0.3 * float(expected)
    gradients, norm, coefficient, _ = unscale_and_clip(scaled, 64.0, limit, norm_type=norm_type, eps=eps)
    torch.testing.assert_close(norm.double(), expected, rtol=1e-7, atol=0.0)
    exact = limit / (float(expected) + eps)
    assert coefficient.item() == pytest.approx(exact, rel=1e-7)
    for actual, wanted in zip([g for g in gradients if g.numel()], true, strict=True):
        rtol = max(2 * torch.finfo(actual.dtype).eps, 1e-14)
        torch.testing.assert_close(actual.double(), wanted * exact, rtol=rtol, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm_type", NORMS)
def test_large_and_small_values_neither_overflow_nor_vanish(dtype, norm_type):
    for value in (torch.finfo(dtype).max / 16, torch.finfo(dtype).tiny * 16):
        gradients, norm, _, found_inf = unscale_and_clip(
            [torch.full((4,), value, dtype=dtype)], 1.0, INF, norm_type=norm_type
        )
        count = {INF: 1.0}.get(norm_type, 4 ** (1 / norm_type) if norm_type else 1.0)
        expected = torch.tensor(1.0 if norm_type == 0.0 else value * count).float()
        torch.testing.assert_close(norm, expected, rtol=1e-6, atol=0.0)
        assert found_inf == 0.0 and gradients[0][0] == value


@pytest.mark.parametrize("norm_type", NORMS)
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_what_is_not_finite_is_flagged_and_not_clipped(norm_type, bad):
    scaled = [torch.tensor([2.0, bad]), torch.tensor([400.0])]
    gradients, norm, coefficient, found_inf = unscale_and_clip(scaled, 2.0, 1e-3, norm_type=norm_type)
    assert (coefficient.item(), found_inf.item()) == (1.0, 1.0)
    assert gradients[0][0] == 1.0 and gradients[1] == 200.0 and not gradients[0][1].isfinite()
    if norm_type != 0.0:
        assert norm.isnan() if math.isnan(bad) else norm == INF


@pytest.mark.parametrize(
    ("gradient", "scale", "max_norm"),
    [
        (torch.tensor([3e38]), 0.25, INF),  # overflows its dtype by the division
        (torch.tensor([6e4]).half(), 0.25, 1.0),
        (torch.tensor([1.0]), torch.tensor(INF), 1.0),
        (torch.tensor([1.0]), torch.tensor(NAN), 1.0),
        (torch.tensor([1.0]), torch.tensor(0.0), 1.0),
        (torch.tensor([1e30]), 1.0, 1e-30),  # the coefficient is 0 as float32
    ],
)
def test_what_cannot_be_unscaled_or_clipped_is_flagged(gradient, scale, max_norm):
    gradients, _, coefficient, found_inf = unscale_and_clip([gradient], scale, max_norm)
    assert (coefficient.item(), found_inf.item()) == (1.0, 1.0)
    torch.testing.assert_close(gradients[0], gradient / scale, equal_nan=True, check_dtype=False)


def test_dtypes_stay_also_without_dimensions():
    dtypes = (torch.float16, torch.bfloat16, torch.float64, torch.complex64)
    scaled = [torch.tensor(6.0, dtype=dtype) for dtype in dtypes]
    for scale in (2.0, torch.tensor(2.0), torch.tensor(2.0, dtype=torch.float64)):
        gradients, norm, _, _ = unscale_and_clip(scaled, scale, 3.0)
        assert [g.dtype for g in gradients] == list(dtypes) and norm == 6.0
        assert all(g == 1.5 for g in gradients)
    assert [g.dtype for g in unscale_gradients(scaled, torch.tensor(2.0))] == list(dtypes)


def test_without_gradients():
    gradients, norm, coefficient, found_inf = unscale_and_clip([None], 2.0, 1.0)
    assert gradients == [None] and (norm, coefficient, found_inf) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((0.0, 1.0), {}, ValueError, "unscale_and_clip: scale: expected a positive finite number, got 0.0"),
        ((INF, 1.0), {}, ValueError, "unscale_and_clip: scale: expected a positive finite number, got inf"),
        ((NAN, 1.0), {}, ValueError, "unscale_and_clip: scale: expected a positive finite number, got nan"),
        ((torch.ones(2), 1.0), {}, ValueError, "unscale_and_clip: scale: expected a tensor of 1 element, got shape"),
        (("2", 1.0), {}, TypeError, "unscale_and_clip: scale: expected a float or a tensor, got str"),
        ((1.0, 0.0), {}, ValueError, "unscale_and_clip: max_norm: expected a value > 0, got 0"),
        ((1.0, NAN), {}, ValueError, "unscale_and_clip: max_norm: expected a value > 0, got nan"),
        ((1.0, None), {}, TypeError, "unscale_and_clip: max_norm: expected a float or a tensor, got NoneType"),
        ((1.0, torch.ones(2)), {}, ValueError, "unscale_and_clip: max_norm: expected a tensor of 1 element, got shape"),
        ((1.0, 1.0), {"norm_type": -1.0}, ValueError, "unscale_and_clip: norm_type: expected a value >= 0, got -1"),
        ((1.0, 1.0), {"eps": NAN}, ValueError, "unscale_and_clip: eps: expected a finite value >= 0, got nan"),
    ],
)
def test_what_is_refused(arguments, options, error, text):
    with pytest.raises(error, match=text):
        unscale_and_clip([torch.ones(2)], *arguments, **options)
    with pytest.raises(TypeError, match=r"unscale_and_clip: scaled\[1\]: expected a torch.Tensor or None, got int"):
        unscale_and_clip([None, 1], 1.0, 1.0)


@pytest.mark.parametrize("max_norm", [0.5, 1e3])
@pytest.mark.parametrize("norm_type", [2.0, 3.0, INF])
def test_gradients_flow_through(max_norm, norm_type):
    scaled = [torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(2)]

    def run(*scaled):
        gradients, *_ = unscale_and_clip(scaled, torch.tensor(0.5, dtype=torch.float64), max_norm, norm_type=norm_type)
        return tuple(gradients)

    assert torch.autograd.gradcheck(run, scaled)
    assert norm_type != 2.0 or torch.autograd.gradgradcheck(run, scaled)


def test_a_backward_pass_through_zero_gradients_is_zero_not_nan():
    scaled = torch.zeros(3, requires_grad=True)
    gradients, *_ = unscale_and_clip([scaled], 2.0, 1.0)
    gradients[0].sum().backward()
    assert scaled.grad.tolist() == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_it_compiles_without_a_break(backend):
    def run(first, second, scale, limit):
        gradients, *rest = unscale_and_clip([first, None, second], scale, limit)
        return gradients[0], gradients[2], *rest

    compiled = torch.compile(run, fullgraph=True, backend=backend)
    for bad in (1.0, INF):
        arguments = torch.tensor([6.0, bad]), torch.randn(3).bfloat16(), torch.tensor(2.0), torch.tensor(0.5)
        for actual, expected in zip(compiled(*arguments), run(*arguments), strict=True):
            torch.testing.assert_close(actual, expected, rtol=0.0, atol=0.0)
    constants = torch.compile(lambda g: unscale_and_clip([g], 2.0, 2.5)[0][0], fullgraph=True, backend=backend)
    assert constants(torch.tensor([6.0, 8.0])).tolist() == [1.5, 2.0]


def test_it_does_not_wait():
    before = _C.host_read_count()
    unscale_and_clip([torch.ones(3)], torch.tensor(2.0), torch.tensor(1.0))
    assert _C.host_read_count() == before
    with FakeTensorMode():  # has no values to read
        gradients, norm, _, _ = unscale_and_clip([torch.ones(3)], torch.ones(()), torch.ones(()))
        assert gradients[0].shape == (3,) and norm.shape == ()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_opcheck(device):
    scaled = [torch.randn(5, device=device, requires_grad=True), torch.randn(2, 2, device=device)]
    scale, limit = torch.full((), 2.0, device=device), torch.full((), 0.5, device=device)
    operator = torch.ops.ampscaler.unscale_and_clip.default
    torch.library.opcheck(operator, (scaled, scale, 0.5))
    torch.library.opcheck(operator, (scaled, scale, 1.0), {"max_norm_tensor": limit, "norm_type": 3.0, "eps": 1e-6})
