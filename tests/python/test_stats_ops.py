"""The one-pass operators under torch's own checks: opcheck, meta and fake tensors, compilation, versions, layouts."""

import contextlib
import copy
import math

import pytest
import torch
from torch._subclasses import FakeTensorMode

import ampscaler
from ampscaler.ops import FACTORS, STATS
from stats_cases import IN_PLACE, OVER_GRADIENTS, arguments, call, dense, gradient_lists, ops, sparse_list, tensors_in

LISTS = list(gradient_lists())


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)], autouse=True)
def device(request):
    """Where the tensors of a test are made unless it says otherwise."""
    with contextlib.nullcontext() if request.param == "cpu" else torch.device(request.param):
        yield request.param


def slot(results, name):
    stats, factors = results
    return stats[STATS.index(name)].item() if name in STATS else factors[FACTORS.index(name)].item()


def test_slots_have_names():
    stats, factors = ops.grad_stats([torch.ones(4)], torch.ones(()))
    assert stats.shape == (len(STATS),) and factors.shape == (len(FACTORS),)
    assert stats[STATS.index("norm")] == 2.0 and stats[STATS.index("elements")] == 4.0
    assert factors[FACTORS.index("found_inf")] == 0.0 and factors[FACTORS.index("clip_coefficient")] == 1.0
    assert ampscaler.ops.STATS == STATS


@pytest.mark.parametrize("options", [False, True], ids=["plain", "options"])
@pytest.mark.parametrize("grads", LISTS)
@pytest.mark.parametrize("name", OVER_GRADIENTS)
def test_opcheck(name, grads, options):
    positional, keywords = arguments(name, gradient_lists()[grads], options)
    checks = ["test_schema", "test_autograd_registration"]
    if (name, grads) != ("find_nonfinite", "empty"):  # fake tensors need an argument that has a device
        checks += ["test_faketensor", "test_aot_dispatch_dynamic"]
    torch.library.opcheck(getattr(ops, name).default, positional, keywords, test_utils=checks)


@pytest.mark.parametrize("name", OVER_GRADIENTS)
def test_opcheck_with_gradients_that_require_a_gradient(name):
    grads = [torch.ones(3, requires_grad=True), torch.ones(2)]
    positional, keywords = arguments(name, grads)
    torch.library.opcheck(getattr(ops, name).default, positional, keywords)


def test_opcheck_of_what_takes_scalars():
    stats = [torch.rand(len(STATS), dtype=torch.float64) for _ in range(3)]
    torch.library.opcheck(ops.merge_stats.default, (stats,))
    limit = {"norm_type": 1.0, "max_norm": 0.5, "max_norm_tensor": torch.ones(1), "eps": 1e-6}
    torch.library.opcheck(ops.merge_stats.default, (stats[:1],), limit)
    torch.library.opcheck(ops.step_factors.default, (torch.zeros(()),))
    given = {"scale": torch.full((), 8.0), "divisor": torch.ones(1, dtype=torch.float64)}
    given |= {"user_scale": torch.full((), 2), "clip_coefficient": torch.full((), 0.5)}
    torch.library.opcheck(ops.step_factors.default, (torch.zeros(1),), given)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", OVER_GRADIENTS)
def test_compiled_calls_equal_eager_ones(name, backend):
    torch._dynamo.reset()  # its limit of recompilations counts all parametrisations

    def step(grads):
        doubled = [grad * 2 for grad in grads]
        results = call(name, doubled, options=True)
        return doubled, results

    grads = gradient_lists()["mixed"] + gradient_lists()["strided"]
    compiled = torch.compile(step, fullgraph=True, backend=backend)(grads)
    for ours, theirs in zip(tensors_in(compiled), tensors_in(step(grads)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", OVER_GRADIENTS)
def test_meta_tensors_give_shapes_and_bump_versions(name):
    grads = gradient_lists()["mixed"]
    positional, keywords = arguments(name, grads, options=True)
    real = getattr(ops, name)(*positional, **keywords)
    on_meta = [{}, {}]
    for kind in (0, 1):
        on_meta[kind] = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda tensor: torch.empty_like(tensor, device="meta"), (positional, keywords)[kind]
        )
    versions = [grad._version for grad in on_meta[0][0]]
    meta = getattr(ops, name)(*on_meta[0], **on_meta[1])
    for ours, theirs in zip(tensors_in(meta), tensors_in(real), strict=True):
        assert (ours.shape, ours.dtype, ours.stride()) == (theirs.shape, theirs.dtype, theirs.stride())
        assert ours.is_meta
    bumped = [grad._version - version for grad, version in zip(on_meta[0][0], versions, strict=True)]
    assert bumped == [int(name in IN_PLACE)] * len(grads)


@pytest.mark.parametrize("name", OVER_GRADIENTS)
def test_fake_tensors_keep_their_device(name, device):
    with FakeTensorMode():
        results = call(name, [torch.ones(3), torch.ones(2, dtype=torch.float16)], options=True)
    assert all(tensor.device.type == device for tensor in tensors_in(results))


@pytest.mark.parametrize("name", OVER_GRADIENTS)
def test_versions(name):
    grads = [torch.ones(3), torch.ones(4, 4).t(), torch.ones(0), torch.eye(2).to_sparse()]
    positional, keywords = arguments(name, grads, options=True)
    others = [*tensors_in(positional[1:]), *tensors_in(keywords)]
    accumulate = keywords.get("accumulate")
    before = {id(tensor): tensor._version for tensor in [*grads, *others]}
    getattr(ops, name)(*positional, **keywords)
    assert [grad._version - before[id(grad)] for grad in grads] == [int(name in IN_PLACE)] * len(grads)
    for tensor in others:
        assert tensor._version - before[id(tensor)] == int(tensor is accumulate)


def test_an_untouched_gradient_is_bumped_all_the_same():
    grads = [torch.ones(3)]
    ops.scale_grads_(grads, torch.ones(()), torch.zeros(()))
    assert grads[0]._version == 1 and torch.equal(grads[0], torch.ones(3))


@pytest.mark.parametrize("name", OVER_GRADIENTS)
def test_inference_tensors(name):
    with torch.inference_mode():
        inference = [torch.full((3,), 4.0), torch.full((2, 2), 4.0).t()]
    ordinary = [grad.clone() for grad in inference]
    results = call(name, inference), call(name, ordinary)
    for ours, theirs in zip(tensors_in(results[0]) + inference, tensors_in(results[1]) + ordinary, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", OVER_GRADIENTS)
def test_gradients_that_require_a_gradient_are_edited_in_silence(name, sparse):
    grads = sparse_list() if sparse else [torch.full((3,), 4.0), torch.ones(2, dtype=torch.float16)]
    expected = copy.deepcopy(grads)
    call(name, expected)
    leaves = [grad.requires_grad_() for grad in grads]
    results = call(name, leaves)
    for leaf, value in zip(leaves, expected, strict=True):
        assert leaf.is_leaf and leaf.requires_grad
        assert torch.equal(dense(leaf.detach()), dense(value))
    assert not any(tensor.requires_grad for tensor in tensors_in(results))


def test_sparse_statistics_are_those_of_the_coalesced_values():
    grads = sparse_list()
    values = [dense(grad) for grad in grads]
    options = {"max_norm": 0.5, "user_scale": torch.full((), 3.0)}
    results = ops.grad_stats(grads, torch.full((), 8.0), **options)
    expected = ops.grad_stats(values, torch.full((), 8.0), **options)
    for name in ("norm", "max_abs", "clip_coefficient", "unscale_and_clip", "grad_scale"):
        assert math.isclose(slot(results, name), slot(expected, name), rel_tol=1e-15)
    assert slot(results, "elements") == 4 + 3 + 5
    assert not grads[0].is_coalesced()


@pytest.mark.parametrize("name", IN_PLACE)
def test_sparse_gradients_are_edited_like_dense_ones(name):
    grads = sparse_list()
    values = [dense(grad).clone() for grad in grads]
    results, expected = call(name, grads), call(name, values)
    for grad, value in zip(grads, values, strict=True):
        assert torch.equal(dense(grad), value)
    if results is not None:
        assert slot(results, "norm") == pytest.approx(slot(expected, "norm"), rel=1e-15)
        assert slot(results, "found_inf") == 0.0


def test_embedding_gradients_whose_values_are_expanded():
    weights = [torch.nn.Parameter(torch.ones(5, 3)) for _ in range(2)]
    rows = torch.tensor([1, 2, 1])
    loss = sum(torch.nn.functional.embedding(rows, weight, sparse=True).sum() for weight in weights)
    (loss * 4).backward()
    grads = [weight.grad for weight in weights]
    results = ops.unscale_with_stats_(grads, torch.full((), 4.0))
    expected = torch.zeros(5, 3)
    expected[1], expected[2] = 2.0, 1.0
    assert all(torch.equal(grad.to_dense(), expected) for grad in grads)
    assert slot(results, "norm") == pytest.approx(math.sqrt(2 * (3 * 4 + 3)), rel=1e-15)


def test_sparse_calls_accumulate_with_dense_ones():
    words = torch.zeros(141, dtype=torch.int64)
    scale = torch.full((), 2.0)
    ops.grad_stats([torch.full((4,), 6.0)], scale, accumulate=words)
    results = ops.unscale_with_stats_([torch.full((16,), 8.0).to_sparse()], scale, accumulate=words)
    assert slot(results, "norm") == pytest.approx(math.sqrt(4 * 9 + 16 * 16), rel=1e-15)
    assert slot(results, "elements") == 20


def test_where_a_sparse_gradient_is_not_finite():
    grad = torch.sparse_coo_tensor([[3, 1, 0]], [math.nan, math.inf, 1.0], (4,))
    rows = ops.find_nonfinite([torch.ones(2), grad])
    assert rows.tolist() == [[-1, 0, 0], [1, 1, 2]]


def test_lists_that_backends_share():
    """Dense parts and sparse ones of a list have one total; nothing depends on the order."""
    dense_grads = gradient_lists()["mixed"]
    scale = torch.full((), 4.0)
    together = ops.grad_stats([*dense_grads, *sparse_list()], scale)
    parts = [ops.grad_stats(dense_grads, scale)[0], ops.grad_stats(sparse_list(), scale)[0]]
    merged = ops.merge_stats(parts)
    assert slot(together, "norm") == pytest.approx(slot(merged, "norm"), rel=1e-15)
    assert slot(together, "elements") == slot(merged, "elements")
    turned = ops.grad_stats([*sparse_list(), *dense_grads], scale)
    assert torch.equal(together[0], turned[0])


def test_an_expanded_gradient_may_be_read():
    grad = torch.full((1,), 3.0).expand(4)
    assert slot(ops.grad_stats([grad], torch.ones(())), "norm") == 6.0
    assert ops.grad_norms([grad], torch.ones(())).tolist() == [6.0]


def test_lazy_views_may_be_read():
    values = torch.tensor([3.0 + 4.0j, 0.0])
    lazy = [values.conj(), values.conj().imag]
    assert slot(ops.grad_stats(lazy, torch.ones(())), "norm") == pytest.approx(math.sqrt(25 + 16), rel=1e-15)
