"""The one-pass operators on CUDA: results of the CPU, norm bits, long lists, streams, graphs, no waiting."""

import math

import pytest
import torch

from ampscaler.ops import FACTORS, STATS
from stats_cases import IN_PLACE, OVER_GRADIENTS, arguments, call, ops, tensors_in

pytestmark = pytest.mark.cuda
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
SIZES = (0, 1, 7, 64, 4095, 4096, 4097, 100_003)  # around the 16 KiB of a unit
TWO_LEVEL_ERROR = 2.0**-20


def gradients(dtype, planted=None, device="cuda"):
    """One list with every size, an address that is not a multiple of 16 bytes, and a gradient with gaps."""
    generator = torch.Generator().manual_seed(7)
    real = torch.float64 if dtype == torch.float64 else torch.float32
    wide = torch.complex64 if dtype.is_complex else real
    values = [torch.randn(size + 1, dtype=wide, generator=generator).mul_(100).to(dtype) for size in SIZES]
    values.append(torch.randn(60, 70, dtype=wide, generator=generator).to(dtype))
    if planted is not None:
        values[-1][59, 68] = planted
        values[3][5] = planted
    on_device = [value.to(device) for value in values]
    return [value[1:] for value in on_device[:-1]] + [on_device[-1][:, ::2]]


def on_cuda(value):
    """The tensors in nested arguments, but not in lists: those are of gradients."""
    if isinstance(value, torch.Tensor):
        return value.cuda()
    if isinstance(value, dict):
        return {key: on_cuda(part) for key, part in value.items()}
    return tuple(on_cuda(part) for part in value) if isinstance(value, tuple) else value


def compare(ours, theirs):
    """Counts and flags equal; norms and what follows from them within their error."""
    for mine, cpu in zip(tensors_in(ours), tensors_in(theirs), strict=True):
        rtol = TWO_LEVEL_ERROR if mine.is_floating_point() else 0
        torch.testing.assert_close(mine.cpu(), cpu, rtol=rtol, atol=0, equal_nan=True)


def expect_same(mine, cpu):
    """Equal, the sign of zeros too; NaN where NaN is, of any sign and payload."""
    mine, cpu = (torch.view_as_real(value) if value.is_complex() else value for value in (mine.cpu(), cpu))
    torch.testing.assert_close(mine, cpu, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(mine.signbit() & ~mine.isnan(), cpu.signbit() & ~cpu.isnan())


@pytest.mark.parametrize("planted", [None, math.inf, math.nan])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OVER_GRADIENTS)
def test_results_are_those_of_the_cpu(name, dtype, planted):
    operator = getattr(ops, name)
    for options in (False, True):
        positional, keywords = arguments(name, gradients(dtype, planted, "cpu"), options)
        grads = gradients(dtype, planted)
        ours = operator(grads, *on_cuda(positional[1:]), **on_cuda(keywords))
        compare(ours, operator(*positional, **keywords))
        for mine, cpu in zip(grads, positional[0], strict=True):
            expect_same(mine, cpu)


def test_norm_bits_depend_on_neither_order_nor_splitting():
    grads = [grad for dtype in DTYPES for grad in gradients(dtype)]
    scale = torch.full((), 3.0, device="cuda")
    whole = ops.grad_stats(grads, scale)[0]
    assert torch.equal(ops.grad_stats(grads[::-1], scale)[0], whole)
    words = torch.zeros(141, dtype=torch.int64, device="cuda")
    for part in (grads[:3], grads[3:20], grads[20:]):
        split = ops.grad_stats(part, scale, accumulate=words)[0]
    assert torch.equal(split, whole)


def test_five_thousand_gradients():
    flat = torch.randn(5000, 64, device="cuda")
    grads = list(flat.clone().unbind())
    scale = torch.full((), 4.0, device="cuda")
    stats, factors = ops.unscale_with_stats_(grads, scale, max_norm=1.0)
    norm = flat.double().norm().item() / 4
    assert stats[STATS.index("norm")].item() == pytest.approx(norm, rel=TWO_LEVEL_ERROR)
    assert stats[STATS.index("elements")].item() == flat.numel()
    ops.scale_grads_(grads, factors[FACTORS.index("clip_coefficient")], factors[FACTORS.index("found_inf")])
    assert torch.stack(grads).double().norm().item() == pytest.approx(1.0, rel=1e-6)
    norms = ops.grad_norms(grads, torch.ones((), device="cuda"))
    torch.testing.assert_close(norms.double(), torch.stack(grads).double().norm(dim=1), rtol=2.0**-19, atol=0)
    grads[4321][63] = math.nan
    rows = ops.find_nonfinite(grads)
    assert rows[4321].tolist() == [63, 2, 1] and rows[:, 2].sum().item() == 1


@pytest.mark.parametrize("parts", [1, 2, 120, 121])
def test_merged_statistics_are_those_of_the_cpu(parts):
    rows = torch.rand(parts, len(STATS), dtype=torch.float64)
    for given in (rows, rows.t().contiguous().t()):
        ours = ops.merge_stats(given.cuda().unbind(), max_norm=0.3)
        for mine, cpu in zip(ours, ops.merge_stats(given.unbind(), max_norm=0.3), strict=True):
            assert torch.equal(mine.cpu(), cpu)


@pytest.mark.parametrize("number", [0.3, -2.0, 0.0, 1e-310, 1e300, math.inf, math.nan])
@pytest.mark.parametrize("name", ["scale", "divisor", "user_scale", "clip_coefficient"])
def test_step_factors_are_those_of_the_cpu(name, number):
    given = {"scale": torch.tensor(8.0), "divisor": torch.tensor(3)} | {name: torch.tensor(number, dtype=torch.float64)}
    expected = ops.step_factors(torch.zeros(()), **given)
    assert torch.equal(ops.step_factors(torch.zeros((), device="cuda"), **on_cuda(given)).cpu(), expected)


@pytest.mark.parametrize("name", [*OVER_GRADIENTS, "merge_stats", "step_factors"])
def test_no_call_waits_for_the_device(name):
    grads = gradients(torch.float16)
    with torch.device("cuda"):
        stats = [torch.rand(len(STATS), dtype=torch.float64) for _ in range(2)]
        given = {"merge_stats": ((stats,), {"max_norm": 1.0}), "step_factors": ((torch.zeros(()),), {})}
        positional, keywords = given[name] if name in given else arguments(name, grads, options=True)
    getattr(ops, name)(*positional, **keywords)  # the first call makes what the stream keeps
    torch.cuda.set_sync_debug_mode("error")
    try:
        getattr(ops, name)(*positional, **keywords)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_streams_do_not_share_their_sums():
    lists = [[torch.full((1 << 20,), float(value), device="cuda") for _ in range(8)] for value in (1, 2)]
    scale = torch.ones((), device="cuda")
    streams = [torch.cuda.Stream() for _ in lists]
    torch.cuda.synchronize()
    results = []
    for _ in range(50):
        for stream, grads in zip(streams, lists, strict=True):
            with torch.cuda.stream(stream):
                results.append(ops.grad_stats(grads, scale)[0])
    torch.cuda.synchronize()
    norms = {stats[STATS.index("norm")].item() for stats in results}
    assert norms == {math.sqrt(1 << 23), 2 * math.sqrt(1 << 23)}


def test_a_stream_from_elsewhere():
    made_by_torch = torch.cuda.Stream()  # any handle serves: by it alone torch takes a stream for a foreign one
    with torch.cuda.stream(torch.cuda.ExternalStream(made_by_torch.cuda_stream)):
        for _ in range(2):
            stats, _ = ops.grad_stats([torch.full((4,), 3.0, device="cuda")], torch.ones((), device="cuda"))
    torch.cuda.synchronize()
    assert stats[STATS.index("norm")].item() == 6.0


def test_a_captured_step_follows_data_and_scale():
    grads = [torch.ones(5000, device="cuda"), torch.ones(3, dtype=torch.float16, device="cuda")]
    scale = torch.full((), 2.0, device="cuda")
    tracker = torch.zeros((), dtype=torch.int32, device="cuda")
    found_inf = torch.zeros((), device="cuda")

    def step():
        stats, factors = ops.unscale_with_stats_(grads, scale, max_norm=1.0)
        ops.scale_grads_(grads, factors[FACTORS.index("clip_coefficient")], factors[FACTORS.index("found_inf")])
        found_inf.copy_(factors[FACTORS.index("found_inf")])
        ops.update_scale_(scale, tracker, found_inf, 2.0, 0.5, 1)
        return stats

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stats = step()
    scale.fill_(2.0)
    for value, expected_scale in [(8.0, 4.0), (math.inf, 2.0), (6.0, 4.0), (4.0, 8.0)]:
        before = scale.item()
        for grad in grads:
            grad.fill_(value)
        graph.replay()
        norm = value / before * math.sqrt(5003)
        assert stats[STATS.index("norm")].item() == pytest.approx(norm, rel=TWO_LEVEL_ERROR)
        assert scale.item() == expected_scale
        total = torch.cat([grad.double() for grad in grads]).norm().item()
        assert total == (math.inf if math.isinf(value) else pytest.approx(1.0, rel=1e-3))


@pytest.mark.parametrize("name", IN_PLACE)
def test_tensors_elsewhere_are_refused_by_name(name):
    with torch.device("cuda"):
        positional, keywords = arguments(name, [torch.ones(2), torch.ones(2, device="cpu")])
    with pytest.raises(
        RuntimeError, match=rf"ampscaler::{name}: grads\[1\]: expected a tensor on cuda:0, got one on cpu"
    ):
        getattr(ops, name)(*positional, **keywords)
    assert torch.equal(positional[0][0].cpu(), torch.ones(2))


def test_an_empty_list_has_results():
    with torch.device("cuda"):
        stats, factors = call("grad_stats", [])
    assert stats.is_cuda and stats[STATS.index("norm")].item() == 0.0
    assert factors[FACTORS.index("found_inf")].item() == 0.0
