"""What the one-pass operators refuse: type and text of each error, and that a refused call changes nothing."""

import math

import pytest
import torch

from stats_cases import IN_PLACE, OVER_GRADIENTS, arguments, dense, ops, tensors_in, uncoalesced

ONE = torch.ones(())
WORDS = torch.zeros(141, dtype=torch.int64)
PASSES = ["grad_stats", "unscale_with_stats_"]

# Keyword argument, value, error, what the text says behind "ampscaler::<operator>: ".
OPTIONS = [
    ("scale", torch.ones(2), RuntimeError, "scale: expected a float32 tensor with 1 element, got float32, shape [2]."),
    ("scale", ONE.double(), RuntimeError, "scale: expected a float32 tensor with 1 element, got float64, shape []."),
    (
        "divisor",
        torch.ones(2),
        RuntimeError,
        "divisor: expected a tensor of real numbers with 1 element, got float32, ",
    ),
    ("divisor", ONE.bool(), RuntimeError, "divisor: expected a tensor of real numbers with 1 element, got bool, "),
    ("divisor", ONE.to(torch.complex64), RuntimeError, "divisor: expected a tensor of real numbers with 1 element, "),
    ("user_scale", torch.ones(0), RuntimeError, "user_scale: expected a tensor of real numbers with 1 element, got "),
    ("user_scale", torch.ones(1).to_sparse(), RuntimeError, "user_scale: expected a tensor of real numbers with 1 "),
    ("norm_type", math.nan, ValueError, "norm_type: expected a number >= 0, got nan."),
    ("norm_type", -1.0, ValueError, "norm_type: expected a number >= 0, got -1."),
    ("max_norm", 0.0, ValueError, "max_norm: expected a number > 0, got 0."),
    ("max_norm", math.nan, ValueError, "max_norm: expected a number > 0, got nan."),
    ("max_norm_tensor", torch.ones(2), RuntimeError, "max_norm_tensor: expected a tensor of real numbers with 1 "),
    ("eps", -1e-6, ValueError, "eps: expected a finite number >= 0, got -1e-06."),
    ("eps", math.inf, ValueError, "eps: expected a finite number >= 0, got inf."),
    ("accumulate", WORDS[1:], RuntimeError, "accumulate: expected a contiguous int64 tensor of shape [141], got int64"),
    (
        "accumulate",
        WORDS.int(),
        RuntimeError,
        "accumulate: expected a contiguous int64 tensor of shape [141], got int3",
    ),
    ("accumulate", WORDS.repeat(2)[::2], RuntimeError, "accumulate: expected a contiguous int64 tensor of shape [141]"),
]


def snapshot(tensors):
    return [(tensor._version, dense(tensor).clone()) for tensor in tensors]


def expect_refused(name, positional, keywords, error, text):
    tensors = tensors_in(positional) + tensors_in(keywords)
    before = snapshot(tensors)
    with pytest.raises(error) as caught:
        getattr(ops, name)(*positional, **keywords)
    assert type(caught.value) is error
    assert str(caught.value).startswith(f"ampscaler::{name}: {text}")
    for (version, value), (old_version, old_value) in zip(snapshot(tensors), before, strict=True):
        assert version == old_version
        torch.testing.assert_close(value, old_value, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("argument", "value", "error", "text"), OPTIONS, ids=lambda value: str(value)[:12])
@pytest.mark.parametrize("name", PASSES)
def test_options(name, argument, value, error, text):
    keywords = {"scale": torch.ones(()), argument: value}
    expect_refused(name, ([torch.ones(3)],), keywords, error, text)
    if argument != "scale":
        expect_refused(name, ([],), keywords, error, text)


@pytest.mark.parametrize("clip_value", [-0.5, math.nan])
def test_clip_value(clip_value):
    text = f"clip_value: expected a number >= 0, got {clip_value}."
    expect_refused("unscale_clamp_", ([torch.ones(3)], torch.ones(()), clip_value), {}, ValueError, text)


def strided_pair():
    base = torch.ones(10)
    return [base[:6], base[4:]]


def same_twice():
    grad = torch.ones(3)
    return [torch.ones(2), grad, grad]


def sparse_twice():
    grad = uncoalesced()
    return [grad, grad]


DENSE_TEXT = "expected a dense or sparse COO tensor, got "
DTYPE_TEXT = "expected float16, bfloat16, float32, float64 or complex values, got "
GRADIENTS = [
    ([torch.ones(2), torch.ones(2, dtype=torch.int64)], NotImplementedError, f"grads[1]: {DTYPE_TEXT}int64."),
    ([torch.ones(0, dtype=torch.bool)], NotImplementedError, f"grads[0]: {DTYPE_TEXT}bool."),
    ([torch.ones(2).to(torch.float8_e5m2)], NotImplementedError, f"grads[0]: {DTYPE_TEXT}float8_e5m2."),
    ([torch.ones(2, 2).to_sparse_csr()], NotImplementedError, f"grads[0]: {DENSE_TEXT}"),
    ([torch.ones(2, 2).to_mkldnn()], NotImplementedError, f"grads[0]: {DENSE_TEXT}"),
    ([torch.eye(2, dtype=torch.int64).to_sparse()], NotImplementedError, f"grads[0]: {DTYPE_TEXT}int64."),
]


@pytest.mark.parametrize(("grads", "error", "text"), GRADIENTS, ids=lambda value: str(value)[:12])
@pytest.mark.parametrize("name", OVER_GRADIENTS)
def test_gradients(name, grads, error, text):
    positional, keywords = arguments(name, grads)
    with pytest.raises(error) as caught:
        getattr(ops, name)(*positional, **keywords)
    assert str(caught.value).startswith(f"ampscaler::{name}: {text}")


@pytest.mark.parametrize(
    ("make", "indices"),
    [(same_twice, (1, 2)), (strided_pair, (0, 1)), (sparse_twice, (0, 1))],
    ids=["same", "overlapping", "sparse"],
)
@pytest.mark.parametrize("name", PASSES + IN_PLACE[1:])
def test_gradients_that_share_memory(name, make, indices):
    first, second = indices
    text = (
        f"grads: expected tensors with memory of their own, got grads[{first}] and grads[{second}] that share memory."
    )
    positional, keywords = arguments(name, make(), options=True)
    expect_refused(name, positional, keywords, ValueError, text)


def disjoint_views():
    base = torch.ones(12, 8)
    deep = torch.ones(4, 6, 10)
    return {
        "columns": [base[:, :3], base[:, 3:]],
        "every_other": [base[:, 0::2], base[:, 1::2]],
        "blocks": [base[:6, :4], base[:6, 4:], base[6:, :4], base[6:, 4:]],
        "deep": [deep[:, :2, 3:], deep[:, 2:, 3:], deep[..., :3]],
        "backwards": [base[i] for i in reversed(range(12))],
        "channel": [deep[:, :, i] for i in range(10)],
    }


@pytest.mark.parametrize("views", list(disjoint_views()))
def test_interleaved_views_share_no_memory(views):
    grads = disjoint_views()[views]
    ops.unscale_with_stats_(grads, torch.full((), 2.0))
    assert all(bool((grad == 0.5).all()) for grad in grads)


@pytest.mark.parametrize("seed", range(60))
def test_overlap_is_found_for_any_strides(seed):
    """Random views of one buffer: whenever two have an element in common, the call is refused."""
    generator = torch.Generator().manual_seed(seed)
    buffer = torch.zeros(600)

    def view():
        sizes, strides = (torch.randint(1, 5, (3,), generator=generator).tolist() for _ in range(2))
        strides = [stride * unit for stride, unit in zip(strides, (1, 5, 25), strict=True)]
        offset = int(torch.randint(0, 60, (), generator=generator))
        return buffer.as_strided(sizes, strides, offset)

    first, second = view(), view()
    addresses = [{buffer[0].data_ptr() + 4 * int(i) for i in indices(one)} for one in (first, second)]
    if addresses[0] & addresses[1]:
        with pytest.raises(ValueError, match="share memory"):
            ops.grad_stats([first, second], ONE)
    else:  # may be refused where it cannot be told, but ranges apart never are
        apart = max(addresses[0]) < min(addresses[1]) or max(addresses[1]) < min(addresses[0])
        if apart:
            ops.grad_stats([first, second], ONE)


def indices(view):
    positions = torch.arange(600).as_strided(view.shape, view.stride(), view.storage_offset())
    return positions.flatten().tolist()


@pytest.mark.parametrize("name", IN_PLACE)
def test_elements_that_stand_for_several_are_not_written(name):
    grads = [torch.ones(2), torch.ones(1).expand(4)]
    positional, keywords = arguments(name, grads, options=True)
    before = snapshot(tensors_in(positional) + tensors_in(keywords))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        getattr(ops, name)(*positional, **keywords)
    after = snapshot(tensors_in(positional) + tensors_in(keywords))
    assert all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("lazy", [torch.ones(2, dtype=torch.complex64).conj(), torch._neg_view(torch.ones(2))])
def test_lazy_views_are_not_written(name, lazy):
    positional, keywords = arguments(name, [lazy])
    with pytest.raises(RuntimeError):  # by torch's dispatcher, before ours
        getattr(ops, name)(*positional, **keywords)
    assert torch.equal(lazy, torch.ones(2).to(lazy.dtype) * (-1 if lazy.is_neg() else 1))


def test_scalars_of_the_second_pass():
    text = "factor: expected a float32 tensor with 1 element, got float64, shape []."
    expect_refused("scale_grads_", ([torch.ones(2)], ONE.double(), ONE), {}, RuntimeError, text)
    text = "found_inf: expected a float32 tensor with 1 element, got float32, shape [2]."
    expect_refused("scale_grads_", ([torch.ones(2)], ONE, torch.zeros(2)), {}, RuntimeError, text)


@pytest.mark.parametrize(
    ("stats", "keywords", "error", "text"),
    [
        ([], {}, ValueError, "stats: expected at least 1 tensor, got none."),
        (
            [torch.ones(9)],
            {},
            RuntimeError,
            "stats[0]: expected a float64 tensor of shape [9], got float32, shape [9].",
        ),
        ([torch.ones(8).double()], {}, RuntimeError, "stats[0]: expected a float64 tensor of shape [9], got float64"),
        ([torch.ones(9).double()], {"max_norm": -1.0}, ValueError, "max_norm: expected a number > 0, got -1."),
        ([torch.ones(9).double()], {"norm_type": -1.0}, ValueError, "norm_type: expected a number >= 0, got -1."),
        ([torch.ones(9).double()], {"eps": math.nan}, ValueError, "eps: expected a finite number >= 0, got nan."),
    ],
)
def test_merge_stats(stats, keywords, error, text):
    expect_refused("merge_stats", (stats,), keywords, error, text)


@pytest.mark.parametrize("argument", ["scale", "divisor", "user_scale", "clip_coefficient"])
def test_step_factors(argument):
    text = f"{argument}: expected a tensor of real numbers with 1 element, got float32, shape [2]."
    expect_refused("step_factors", (ONE.clone(),), {argument: torch.ones(2)}, RuntimeError, text)
    text = "found_inf: expected a float32 tensor with 1 element, got int64, shape []."
    expect_refused("step_factors", (ONE.long(),), {}, RuntimeError, text)


@pytest.mark.parametrize("name", ["grad_stats", "unscale_with_stats_", "unscale_clamp_", "grad_norms"])
def test_devices_are_not_mixed(name):
    """A meta scale stands for another device: it decides which kernel runs, and that one refuses."""
    positional, keywords = arguments(name, [torch.ones(2)])
    positional = (positional[0], positional[1].to("meta"), *positional[2:])
    with pytest.raises(RuntimeError, match=r"grads\[0\]: expected a tensor on meta, got one on cpu"):
        getattr(ops, name)(*positional, **keywords)


@pytest.mark.parametrize("name", OVER_GRADIENTS)
def test_vmap_is_refused_like_that_of_torchs_operator(name):
    """Of a mapped list no one could say what the one norm and the one flag are."""

    def torchs(gradient):
        torch._amp_foreach_non_finite_check_and_unscale_([gradient], torch.zeros(()), ONE)
        return gradient

    def ours(gradient):
        positional, keywords = arguments(name, [gradient])
        getattr(ops, name)(*positional, **keywords)
        return gradient

    texts = []
    for function in (torchs, ours):
        with pytest.raises(RuntimeError, match="Batching rule not implemented for") as caught:
            torch.vmap(function)(torch.ones(3, 2))
        texts.append(str(caught.value))
    assert texts[1] == texts[0].replace("aten::_amp_foreach_non_finite_check_and_unscale_", f"ampscaler::{name}")
