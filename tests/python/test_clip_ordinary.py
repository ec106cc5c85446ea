"""clip_grad_norm_ and clip_grad_value_ with optimizers that know nothing of the scale, with those that handle it in a
way of their own, and with several at once."""

import pytest
import torch
from torch.amp.grad_scaler import OptState

from ampscaler import _C
from clip_cases import (
    INF,
    NAN,
    SCALE,
    Delegating,
    OwnStep,
    PassesItself,
    assert_close,
    exact_copy,
    exact_norm,
    gradients_of,
    make_scaler,
    parameters,
    set_gradients,
)

ORDINARY = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam_foreach": (torch.optim.Adam, {"foreach": True}),
    "adamw_loop": (torch.optim.AdamW, {"foreach": False}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adagrad": (torch.optim.Adagrad, {"weight_decay": 0.1}),
}


def stage(scaler, optimizer):
    state = scaler._per_optimizer_states.get(id(optimizer))
    return OptState.READY if state is None else state["stage"]


@pytest.mark.parametrize("max_norm", [0.5, 1000.0, INF])
@pytest.mark.parametrize("name", ORDINARY)
def test_three_steps_are_those_of_true_clipped_gradients(name, max_norm):
    params = parameters(300, (7, 11), 5)
    cls, options = ORDINARY[name]
    optimizer = cls(params, **options)
    scaler = make_scaler()
    for seed in range(3):
        set_gradients(params, seed=seed)
        norm = exact_norm(gradients_of(params), SCALE)
        twins, twin_optimizer = exact_copy(optimizer, params, SCALE, min(1.0, max_norm / norm))
        reads = _C.host_read_count()
        found = scaler.clip_grad_norm_(optimizer, max_norm)
        torch.testing.assert_close(found.double(), norm, rtol=2e-7, atol=0.0)
        assert stage(scaler, optimizer) is OptState.UNSCALED
        assert_close(gradients_of(params), gradients_of(twins), rtol=3e-7)
        scaler.step(optimizer)
        assert _C.host_read_count() - reads == 1
        scaler.update()
        twin_optimizer.step()
        assert_close(params, twins)


def test_within_the_limit_the_gradients_are_those_of_unscale():
    ours, theirs = parameters(1000), parameters(1000)
    for params in (ours, theirs):
        set_gradients(params, scale=1000.0)
    optimizers = [torch.optim.SGD(params) for params in (ours, theirs)]
    make_scaler(1000.0).clip_grad_norm_(optimizers[0], 1e6)
    scaler = torch.amp.GradScaler("cpu", init_scale=1000.0)
    scaler.scale(torch.ones(()))
    scaler.unscale_(optimizers[1])
    torch.testing.assert_close(gradients_of(ours), gradients_of(theirs), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("bad", [INF, NAN])
def test_a_nonfinite_gradient_is_unscaled_and_not_clipped(bad):
    params = parameters(64, 9)
    set_gradients(params)
    params[0].grad[5] = bad
    expected = [g / SCALE for g in gradients_of(params)]
    optimizer = torch.optim.SGD(params)
    scaler = make_scaler()
    before = [p.detach().clone() for p in params]
    norm = scaler.clip_grad_norm_(optimizer, 1e-3)
    assert norm.isnan() if bad != bad else norm == INF
    torch.testing.assert_close(gradients_of(params), expected, rtol=0.0, atol=0.0, equal_nan=True)
    scaler.step(optimizer)
    scaler.update()
    assert all(torch.equal(a, b) for a, b in zip(before, params, strict=True))
    assert scaler.get_scale() == SCALE / 2


def test_after_an_explicit_unscale():
    params = parameters(64, 9)
    set_gradients(params)
    optimizer = torch.optim.SGD(params, 0.1)
    scaler = make_scaler()
    norm = exact_norm(gradients_of(params), SCALE)
    twins, _ = exact_copy(optimizer, params, SCALE, 0.25 / norm)
    scaler.unscale_(optimizer)
    torch.testing.assert_close(scaler.clip_grad_norm_(optimizer, 0.25).double(), norm, rtol=2e-6, atol=0.0)
    assert_close(gradients_of(params), gradients_of(twins), rtol=3e-7)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called"):
        scaler.unscale_(optimizer)


@pytest.mark.parametrize("make", [lambda p: PassesItself(p, 0.1), lambda p: OwnStep(p, fused=True)])
def test_an_optimizer_that_handles_the_scale_is_clipped_on_scaled_gradients(make):
    params = parameters(64, 9)
    set_gradients(params)
    optimizer = make(params)
    scaler = make_scaler()
    norm = exact_norm(gradients_of(params), SCALE)
    scaled, _ = exact_copy(optimizer, params, 1.0, 0.25 / norm)
    twins, _ = exact_copy(optimizer, params, SCALE, 0.25 / norm)
    reference = torch.optim.SGD(twins, 0.1) if isinstance(optimizer, PassesItself) else torch.optim.Adam(twins)
    torch.testing.assert_close(scaler.clip_grad_norm_(optimizer, 0.25).double(), norm, rtol=2e-6, atol=0.0)
    assert stage(scaler, optimizer) is OptState.READY
    assert_close(gradients_of(params), gradients_of(scaled), rtol=3e-7)
    with pytest.warns(FutureWarning) if isinstance(optimizer, PassesItself) else torch.no_grad():
        scaler.step(optimizer)
    reference.step()
    assert_close(params, twins)


def test_a_delegating_wrapper_is_clipped():
    params = parameters(64, 9)
    set_gradients(params)
    optimizer = Delegating(torch.optim.SGD(params, 0.1, fused=True))
    scaler = make_scaler()
    norm = exact_norm(gradients_of(params), SCALE)
    twins, reference = exact_copy(optimizer.optimizer, params, SCALE, 0.25 / norm)
    scaler.clip_grad_norm_(optimizer, 0.25)
    scaler.step(optimizer)
    reference.step()
    assert_close(params, twins)


def test_one_norm_over_optimizers_of_different_kinds():
    first, second = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    fused, ordinary = torch.optim.SGD([first], 1.0, fused=True), torch.optim.SGD([second], 1.0)
    for order in ([fused, ordinary], [ordinary, fused]):
        scaler = make_scaler(4.0)
        with torch.no_grad():
            first.zero_(), second.zero_()
        first.grad, second.grad = torch.tensor([24.0]), torch.tensor([32.0])
        assert scaler.clip_grad_norm_(order, 5.0) == 10.0
        assert first.grad == 24.0 and second.grad == 4.0
        scaler.step(fused)
        scaler.step(ordinary)
        assert (first, second) == (-3.0, -4.0)
        scaler.update()


@pytest.mark.parametrize("bad", [INF, NAN])
def test_no_optimizer_of_a_joint_clip_steps_if_one_has_bad_gradients(bad):
    params = parameters(8, 8, 8, 8)
    for parameter in params:
        set_gradients([parameter])
    params[0].grad[3] = bad
    before = [parameter.detach().clone() for parameter in params]
    optimizers = [
        torch.optim.SGD([params[0]], 0.1),
        Delegating(torch.optim.SGD([params[1]], 0.1, fused=True)),
        OwnStep([params[2]], fused=True),
        torch.optim.SGD([params[3]], 0.1, fused=True),
    ]
    scaler = make_scaler()
    scaler.clip_grad_norm_(optimizers, 1.0)
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == SCALE / 2
    assert all(torch.equal(now, then) for now, then in zip(params, before, strict=True))


def test_one_norm_where_one_optimizer_is_unscaled_already():
    first, second = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    first.grad, second.grad = torch.tensor([24.0]), torch.tensor([32.0])
    optimizers = [torch.optim.SGD([p], 1.0) for p in (first, second)]
    scaler = make_scaler(4.0)
    scaler.unscale_(optimizers[1])
    assert scaler.clip_grad_norm_(optimizers, 5.0) == 10.0
    assert first.grad == 3.0 and second.grad == 4.0


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscaled", [False, True])
def test_a_nonfinite_gradient_of_one_optimizer_skips_them_all(fused, unscaled):
    first, second = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    first.grad, second.grad = torch.tensor([INF]), torch.tensor([32.0])
    optimizers = [torch.optim.SGD([first], 1.0), torch.optim.SGD([second], 1.0, fused=fused)]
    scaler = make_scaler(4.0)
    if unscaled:
        scaler.unscale_(optimizers[1])
    assert scaler.clip_grad_norm_(optimizers, 5.0) == INF
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert (first, second) == (0.0, 0.0) and scaler.get_scale() == 2.0
    assert second.grad == (32.0 if fused and not unscaled else 8.0)


def test_a_gradient_that_comes_twice_counts_once():
    params = parameters(16)
    set_gradients(params)
    norm = exact_norm(gradients_of(params), SCALE)
    other = torch.nn.Parameter(params[0].detach().clone())
    other.grad = params[0].grad
    optimizer = torch.optim.SGD([*params, other])
    expected = params[0].grad / SCALE
    torch.testing.assert_close(make_scaler().clip_grad_norm_(optimizer, INF).double(), norm, rtol=2e-7, atol=0.0)
    assert torch.equal(params[0].grad, expected)


def test_sparse_gradients():
    embedding = torch.nn.Embedding(10, 4, sparse=True)
    embedding(torch.tensor([1, 3, 3])).sum().mul(8.0).backward()
    optimizer = torch.optim.SparseAdam(list(embedding.parameters()))
    norm = make_scaler(4.0).clip_grad_norm_(optimizer, 1.0)
    torch.testing.assert_close(norm, torch.tensor((4 * 2.0**2 + 4 * 4.0**2) ** 0.5))
    clipped = embedding.weight.grad.to_dense()
    torch.testing.assert_close(clipped.norm(), torch.tensor(1.0))


class Tagged(torch.Tensor):
    """A subclass that only torch's own operators may touch."""


def test_tensor_subclasses_take_torchs_recipe():
    params = parameters(16)
    params[0].grad = torch.full((16,), 32.0).as_subclass(Tagged)
    optimizer = torch.optim.SGD(params, 1.0)
    scaler = make_scaler(4.0)
    assert scaler.clip_grad_norm_(optimizer, 16.0) == 32.0
    torch.testing.assert_close(params[0].grad.as_subclass(torch.Tensor), torch.full((16,), 4.0))
    assert stage(scaler, optimizer) is OptState.UNSCALED


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscaled", [False, True])
def test_clip_value(fused, unscaled):
    params = parameters(64)
    set_gradients(params)
    expected = (params[0].grad / SCALE).clamp(-0.3, 0.3)
    optimizer = torch.optim.SGD(params, 1.0, fused=fused)
    before = params[0].detach().clone()
    scaler = make_scaler()
    if unscaled:
        scaler.unscale_(optimizer)
    scaler.clip_grad_value_(optimizer, 0.3)
    assert torch.equal(params[0].grad, expected)
    scaler.step(optimizer)
    assert_close(params, [before - expected])


def test_clip_value_after_a_norm_clip_that_was_left_to_the_step():
    params = parameters(64)
    set_gradients(params)
    true = (params[0].grad / SCALE).double()
    optimizer = torch.optim.SGD(params, 1.0, fused=True)
    before = params[0].detach().clone()
    scaler = make_scaler()
    norm = scaler.clip_grad_norm_(optimizer, 0.5 * float(true.norm()))
    torch.testing.assert_close(norm.double(), true.norm(), rtol=1e-6, atol=0.0)
    scaler.clip_grad_value_(optimizer, 0.1)
    expected = (true * 0.5).clamp(-0.1, 0.1)
    torch.testing.assert_close(params[0].grad.double(), expected, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(scaler.grad_norm(optimizer).double(), expected.norm(), rtol=1e-6, atol=0.0)
    scaler.step(optimizer)
    torch.testing.assert_close(before.double() - params[0].double(), expected, rtol=1e-5, atol=1e-6)


def test_clip_value_does_not_hide_an_overflow():
    params = parameters(64)
    set_gradients(params)
    params[0].grad[0] = INF
    before = params[0].detach().clone()
    optimizer = torch.optim.SGD(params, 1.0)
    scaler = make_scaler()
    scaler.clip_grad_value_(optimizer, 0.3)
    assert params[0].grad[0] == 0.3
    scaler.step(optimizer)
    assert torch.equal(before, params[0])


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, INF, 0.0])
def test_other_norms(norm_type):
    params = parameters(300, (7, 11))
    set_gradients(params)
    true = [g.double() / SCALE for g in gradients_of(params)]
    expected = torch.nn.utils.get_total_norm(true, norm_type)
    for optimizer in (torch.optim.SGD(params, fused=True), torch.optim.SGD(params)):
        norm = make_scaler().clip_grad_norm_(optimizer, float(expected) / 2, norm_type)
        torch.testing.assert_close(norm.double(), expected, rtol=1e-6, atol=0.0)
    torch.testing.assert_close([g.double() for g in gradients_of(params)], [t / 2 for t in true], rtol=1e-6, atol=0.0)
