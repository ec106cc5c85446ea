"""Queries (grad_norm, is_finite, grads_are_scaled), the divisor, a disabled scaler, and what each method refuses."""

import pickle

import pytest
import torch

import ampscaler
from ampscaler import _C
from clip_cases import INF, NAN, SCALE, exact_norm, gradients_of, make_scaler, parameters, set_gradients


def make(fused=False, scale=SCALE, **options):
    params = parameters(64)
    set_gradients(params, scale=scale)
    return make_scaler(scale, **options), torch.optim.SGD(params, 0.1, fused=fused), params


@pytest.mark.parametrize("fused", [False, True])
def test_queries_read_the_true_gradients_and_leave_no_trace(fused):
    scaler, optimizer, params = make(fused)
    before, version = params[0].grad.clone(), params[0].grad._version
    reads = _C.host_read_count()
    norm, finite = scaler.grad_norm(optimizer), scaler.is_finite(optimizer)
    assert _C.host_read_count() == reads
    torch.testing.assert_close(norm.double(), exact_norm(gradients_of(params), SCALE), rtol=2e-7, atol=0.0)
    assert finite.dtype is torch.bool and finite.shape == () and finite
    assert torch.equal(before, params[0].grad) and version == params[0].grad._version
    assert not scaler._per_optimizer_states
    pickle.loads(pickle.dumps(scaler))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("bad", [INF, NAN])
def test_is_finite_before_and_after_the_check(fused, bad):
    scaler, optimizer, params = make(fused)
    params[0].grad[3] = bad
    assert not scaler.is_finite(optimizer)
    scaler.clip_grad_norm_(optimizer, 1.0)
    params[0].grad.zero_()  # the decision has been taken
    assert not scaler.is_finite(optimizer)
    scaler.step(optimizer)
    assert not scaler.is_finite(optimizer)


def test_grad_norm_after_unscale_and_after_clip():
    scaler, optimizer, params = make()
    norm = exact_norm(gradients_of(params), SCALE)
    scaler.unscale_(optimizer)
    torch.testing.assert_close(scaler.grad_norm(optimizer).double(), norm, rtol=2e-6, atol=0.0)
    scaler.clip_grad_norm_(optimizer, 0.5)
    torch.testing.assert_close(float(scaler.grad_norm(optimizer)), 0.5, rtol=1e-6, atol=0.0)


def test_grads_are_scaled():
    scaler, optimizer, _ = make()
    assert scaler.grads_are_scaled(optimizer)
    scaler.clip_grad_norm_(optimizer, 1.0)
    assert not scaler.grads_are_scaled(optimizer)
    scaler.step(optimizer)
    assert not scaler.grads_are_scaled(optimizer)
    assert not ampscaler.GradScaler("cpu").grads_are_scaled(optimizer), "before the first scale() nothing is"
    assert not ampscaler.GradScaler("cpu", enabled=False).grads_are_scaled(optimizer)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("bad", [None, INF])
def test_grads_are_scaled_after_the_step_of_a_fused_optimizer(clip, bad):
    scaler, optimizer, params = make(fused=True)
    if bad is not None:
        params[0].grad[0] = bad
    before = params[0].grad.clone()
    if clip:
        scaler.clip_grad_norm_(optimizer, 1e6)
    assert scaler.grads_are_scaled(optimizer)
    scaler.step(optimizer)
    in_memory = torch.equal(before, params[0].grad)
    assert scaler.grads_are_scaled(optimizer) is in_memory is (bad is not None)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("how", ["plain", "clip", "unscale", "value"])
@pytest.mark.parametrize("divisor", [8.0, 8, torch.tensor(8.0), torch.tensor([8])])
def test_divisor(fused, how, divisor):
    scaler, optimizer, params = make(fused)
    before, true = params[0].detach().clone(), params[0].grad / (SCALE * 8)
    scaler.set_grad_divisor(divisor)
    if how == "clip":
        norm = scaler.clip_grad_norm_(optimizer, INF)
        torch.testing.assert_close(norm, true.norm())
    elif how == "unscale":
        scaler.unscale_(optimizer)
        assert torch.equal(params[0].grad, true)
    elif how == "value":
        scaler.clip_grad_value_(optimizer, 1e6)
    scaler.step(optimizer)
    torch.testing.assert_close(params[0].detach(), before - 0.1 * true, rtol=1e-6, atol=1e-8)
    scaler.update()
    assert scaler._ampscaler.divisor is None


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("how", ["plain", "clip", "unscale", "value"])
@pytest.mark.parametrize("divisor", [0.0, -1.0, INF, NAN])
def test_a_divisor_that_is_of_no_use_makes_the_step_a_skip(fused, how, divisor):
    scaler, optimizer, params = make(fused)
    before = params[0].detach().clone()
    scaler.set_grad_divisor(torch.tensor(divisor))
    if how == "clip":
        scaler.clip_grad_norm_(optimizer, 1.0)
    elif how == "unscale":
        scaler.unscale_(optimizer)
    elif how == "value":
        scaler.clip_grad_value_(optimizer, 1.0)
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(before, params[0])
    assert scaler.get_scale() == SCALE / 2


def test_a_disabled_scaler_clips_true_gradients():
    for fused in (False, True):
        params = parameters(64)
        set_gradients(params, scale=1.0)
        optimizer = torch.optim.SGD(params, 0.1, fused=fused)
        norm = exact_norm(gradients_of(params))
        scaler = ampscaler.GradScaler("cpu", enabled=False)
        torch.testing.assert_close(scaler.grad_norm(optimizer).double(), norm, rtol=2e-7, atol=0.0)
        expected = params[0].grad * (0.5 / norm).float()
        torch.testing.assert_close(scaler.clip_grad_norm_(optimizer, 0.5).double(), norm, rtol=2e-7, atol=0.0)
        torch.testing.assert_close(params[0].grad, expected)
        assert scaler.is_finite(optimizer) and not scaler.grads_are_scaled(optimizer)
        scaler.clip_grad_value_(optimizer, 0.01)
        assert params[0].grad.abs().max() <= 0.01
        scaler.step(optimizer)
        scaler.update()
        with pytest.raises(RuntimeError, match="set_grad_divisor: the scaler is disabled"):
            scaler.set_grad_divisor(2.0)


REFUSED = [
    (lambda s, o: s.clip_grad_norm_(o, 0.0), ValueError, "clip_grad_norm_: max_norm: expected"),
    (lambda s, o: s.clip_grad_norm_(o, -1.0), ValueError, "clip_grad_norm_: max_norm: expected"),
    (lambda s, o: s.clip_grad_norm_(o, NAN), ValueError, "clip_grad_norm_: max_norm: expected"),
    (
        lambda s, o: s.clip_grad_norm_(o, "1"),
        TypeError,
        "clip_grad_norm_: max_norm: expected a number or a tensor, got str",
    ),
    (lambda s, o: s.clip_grad_norm_(o, True), TypeError, "clip_grad_norm_: max_norm: expected a number"),
    (lambda s, o: s.clip_grad_norm_(o, torch.ones(2)), TypeError, "clip_grad_norm_: max_norm: expected a real tensor"),
    (lambda s, o: s.clip_grad_norm_(o, 1.0, -1.0), ValueError, "clip_grad_norm_: norm_type: expected"),
    (lambda s, o: s.clip_grad_norm_(o, 1.0, NAN), ValueError, "clip_grad_norm_: norm_type: expected"),
    (lambda s, o: s.clip_grad_norm_(o, 1.0, 2.0, -1.0), ValueError, "clip_grad_norm_: eps: expected"),
    (lambda s, o: s.clip_grad_norm_(o, 1.0, 2.0, NAN), ValueError, "clip_grad_norm_: eps: expected"),
    (
        lambda s, o: s.clip_grad_norm_([o, o], 1.0),
        ValueError,
        "clip_grad_norm_: optimizer: expected each optimizer once",
    ),
    (lambda s, o: s.clip_grad_norm_(None, 1.0), TypeError, "clip_grad_norm_: optimizer: expected an optimizer or"),
    (lambda s, o: s.clip_grad_norm_([o, 3], 1.0), TypeError, r"clip_grad_norm_: optimizer\[1\]: expected an optimizer"),
    (lambda s, o: s.clip_grad_value_(o, -1.0), ValueError, "clip_grad_value_: clip_value: expected a value >= 0"),
    (lambda s, o: s.clip_grad_value_(o, NAN), ValueError, "clip_grad_value_: clip_value: expected a value >= 0"),
    (lambda s, o: s.clip_grad_value_(o, "1"), TypeError, "clip_grad_value_: clip_value: expected a number"),
    (lambda s, o: s.grad_norm(o, -2.0), ValueError, "grad_norm: norm_type: expected"),
    (lambda s, o: s.grad_norm(7), TypeError, "grad_norm: optimizer: expected"),
    (lambda s, o: s.set_grad_divisor(0.0), ValueError, "set_grad_divisor: divisor: expected a positive finite number"),
    (lambda s, o: s.set_grad_divisor(INF), ValueError, "set_grad_divisor: divisor: expected a positive finite number"),
    (lambda s, o: s.set_grad_divisor("2"), TypeError, "set_grad_divisor: divisor: expected a number or a tensor"),
    (lambda s, o: s.set_grad_divisor(torch.ones(2)), TypeError, "set_grad_divisor: divisor: expected a real tensor"),
]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_a_refused_call_changes_nothing(call, error, text, fused):
    scaler, optimizer, params = make(fused)
    before, version = params[0].grad.clone(), params[0].grad._version
    with pytest.raises(error, match=text):
        call(scaler, optimizer)
    assert torch.equal(before, params[0].grad) and version == params[0].grad._version
    assert not scaler._per_optimizer_states
    pickle.dumps(scaler)


@pytest.mark.parametrize("fused", [False, True])
def test_a_limit_in_a_tensor_is_not_read(fused):
    for limit, clips in ((0.5, True), (0.0, False), (-1.0, False), (NAN, False), (INF, False)):
        scaler, optimizer, params = make(fused)
        before, true = params[0].detach().clone(), params[0].grad / SCALE
        reads = _C.host_read_count()
        norm = scaler.clip_grad_norm_(optimizer, torch.tensor(limit))
        assert _C.host_read_count() == reads
        scaler.step(optimizer)
        expected = true * (0.5 / norm) if clips else true
        torch.testing.assert_close(params[0].detach(), before - 0.1 * expected, rtol=1e-6, atol=1e-8)


def test_calls_in_the_wrong_order():
    scaler, optimizer, _ = make()
    fresh = ampscaler.GradScaler("cpu")
    for method, arguments in (("clip_grad_norm_", (1.0,)), ("clip_grad_value_", (1.0,)), ("grad_norm", ())):
        with pytest.raises(AssertionError, match=f"Attempted {method} but _scale is None"):
            getattr(fresh, method)(optimizer, *arguments)
    scaler.step(optimizer)
    for method in ("clip_grad_norm_", "clip_grad_value_"):
        with pytest.raises(RuntimeError, match=rf"{method}\(\) is being called after step\(\)"):
            getattr(scaler, method)(optimizer, 1.0)
    with pytest.raises(RuntimeError, match="were unscaled or checked already"):
        scaler.set_grad_divisor(2.0)


def test_float16_gradients_of_an_ordinary_optimizer_are_refused_as_by_torch():
    params = parameters(8, dtype=torch.float16)
    set_gradients(params, scale=4.0)
    scaler = make_scaler(4.0)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.clip_grad_norm_(torch.optim.SGD(params), 1.0)
    assert not scaler._per_optimizer_states
