"""clip_grad_norm_ with torch's fused optimizers: gradients are read once and not written, and the step applies the
coefficient. The reference is the same optimizer on true, clipped gradients that were formed in float64."""

import copy

import pytest
import torch

from ampscaler import _C
from clip_cases import (
    FUSED,
    INF,
    NAN,
    SCALE,
    assert_close,
    exact_copy,
    exact_norm,
    gradients_of,
    make_scaler,
    parameters,
    set_gradients,
)


def fused(name, params, **more):
    cls, options = FUSED[name]
    optimizer = cls(params, fused=True, **{**options, **more})
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        pytest.skip(f"in torch {torch.__version__} fused {cls.__name__} does not take the scale itself")
    return optimizer


def clipped_step(scaler, optimizer, params, max_norm, **options):
    """One clipped step; returns norm and the parameters that an exact step gives."""
    norm = exact_norm(gradients_of(params), SCALE)
    coefficient = 1.0 if norm <= max_norm else max_norm / (norm + options.get("eps", 0.0))
    twins, twin_optimizer = exact_copy(optimizer, params, SCALE, coefficient)
    before = [g.clone() for g in gradients_of(params)]
    found = scaler.clip_grad_norm_(optimizer, max_norm, **options)
    assert all(torch.equal(a, b) for a, b in zip(before, gradients_of(params), strict=True)), "gradients were written"
    torch.testing.assert_close(found.double(), norm, rtol=2e-7, atol=0.0)
    scaler.step(optimizer)
    scaler.update()
    twin_optimizer.step()
    return twins


@pytest.mark.parametrize("max_norm", [0.5, 1000.0, INF])
@pytest.mark.parametrize("name", FUSED)
def test_three_steps_are_those_of_true_clipped_gradients(name, max_norm):
    params = parameters(300, (7, 11), 5)
    optimizer = fused(name, [{"params": params[:1]}, {"params": params[1:], "lr": 0.02}])
    scaler = make_scaler()
    for seed in range(3):
        set_gradients(params, seed=seed)
        reads = _C.host_read_count()
        twins = clipped_step(scaler, optimizer, params, max_norm)
        creates_buffers = seed == 0 and optimizer.param_groups[0].get("momentum", 0) != 0
        assert _C.host_read_count() - reads == (1 if creates_buffers else 0)
        assert_close(params, twins)
    assert not hasattr(optimizer, "grad_scale") and not hasattr(optimizer, "found_inf")


def test_eps_gives_torchs_coefficient():
    params = parameters(10)
    set_gradients(params)
    optimizer = fused("sgd", params)
    twins = clipped_step(make_scaler(), optimizer, params, 1e-6, eps=1e-6)
    assert_close(params, twins)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes(dtype):
    params = parameters(100, 31, dtype=dtype)
    set_gradients(params, scale=64.0)
    optimizer = fused("sgd", params)
    scaler = make_scaler(64.0, fp16_grads="in_optimizer")
    norm = scaler.clip_grad_norm_(optimizer, 0.5)
    torch.testing.assert_close(norm.double(), exact_norm(gradients_of(params), 64.0), rtol=2e-6, atol=0.0)
    twins, _ = exact_copy(optimizer, params, 64.0, 0.5 / norm.double())
    scaler.step(optimizer)
    with torch.no_grad():
        expected = [t.double() - 0.1 * t.grad.double() for t in twins]
    tolerance = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-6}[dtype]
    assert_close([p.double() for p in params], expected, rtol=tolerance, atol=tolerance)


def test_mixed_dtypes_have_one_norm():
    params = [*parameters(40, dtype=torch.bfloat16), *parameters(50), *parameters(60, dtype=torch.float64)]
    for parameter in params:
        set_gradients([parameter])
    norm = make_scaler().clip_grad_norm_(fused("sgd", params), 1.0)
    torch.testing.assert_close(norm.double(), exact_norm(gradients_of(params), SCALE), rtol=2e-6, atol=0.0)


@pytest.mark.parametrize("name", FUSED)
def test_after_an_explicit_unscale(name):
    params = parameters(64, 9)
    set_gradients(params)
    optimizer = fused(name, params)
    scaler = make_scaler()
    norm = exact_norm(gradients_of(params), SCALE)
    twins, twin_optimizer = exact_copy(optimizer, params, SCALE, 0.25 / norm)
    scaler.unscale_(optimizer)
    torch.testing.assert_close(scaler.clip_grad_norm_(optimizer, 0.25).double(), norm, rtol=2e-6, atol=0.0)
    scaler.step(optimizer)
    twin_optimizer.step()
    assert_close(params, twins)


@pytest.mark.parametrize("name", ["adamw", "sgd_momentum"])
def test_an_unscale_after_the_clip(name):
    params = parameters(64, 9)
    set_gradients(params)
    optimizer = fused(name, params)
    scaler = make_scaler()
    norm = exact_norm(gradients_of(params), SCALE)
    twins, twin_optimizer = exact_copy(optimizer, params, SCALE, 0.25 / norm)
    scaler.clip_grad_norm_(optimizer, 0.25)
    scaler.unscale_(optimizer)
    assert_close(gradients_of(params), [t.grad / (0.25 / norm).float() for t in twins], rtol=1e-5)
    scaler.step(optimizer)
    twin_optimizer.step()
    assert_close(params, twins)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("factor", [2.0, torch.tensor(2.0), torch.tensor([4.0], dtype=torch.float64)])
@pytest.mark.parametrize("unscaled", [False, True])
def test_a_factor_of_the_user_counts(when, factor, unscaled):
    params = parameters(64)
    set_gradients(params)
    optimizer = fused("sgd", params)
    scaler = make_scaler()
    user = float(factor)
    norm = exact_norm(gradients_of(params), SCALE * user)
    if unscaled:
        scaler.unscale_(optimizer)
    divisor = 1.0 if unscaled else SCALE
    if when == "before":
        optimizer.grad_scale = factor
    found = scaler.clip_grad_norm_(optimizer, 0.25)
    seen = norm if when == "before" else norm * user
    torch.testing.assert_close(found.double(), seen, rtol=2e-6, atol=0.0)
    optimizer.grad_scale = factor
    twins, twin_optimizer = exact_copy(optimizer, params, divisor * user, 0.25 / seen)
    scaler.step(optimizer)
    twin_optimizer.step()
    assert_close(params, twins)
    assert not hasattr(optimizer, "grad_scale"), "torch removes it after a step"


def test_two_clips_multiply():
    params = parameters(64)
    set_gradients(params)
    optimizer = fused("sgd", params)
    scaler = make_scaler()
    norm = exact_norm(gradients_of(params), SCALE)
    twins, twin_optimizer = exact_copy(optimizer, params, SCALE, 0.25 / norm)
    scaler.clip_grad_norm_(optimizer, 0.5)
    torch.testing.assert_close(float(scaler.clip_grad_norm_(optimizer, 0.25)), 0.5, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(float(scaler.clip_grad_norm_(optimizer, 1.0)), 0.25, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(float(scaler.grad_norm(optimizer)), 0.25, rtol=1e-6, atol=0.0)
    scaler.step(optimizer)
    twin_optimizer.step()
    assert_close(params, twins)


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
@pytest.mark.parametrize("name", FUSED)
def test_a_nonfinite_gradient_skips_the_step_and_leaves_everything(name, bad):
    params = parameters(64, 9)
    optimizer = fused(name, params)
    scaler = make_scaler()
    for step in range(3):
        set_gradients(params, seed=step)
        if step == 1:
            params[1].grad[3] = bad
        before = [p.detach().clone() for p in params], copy.deepcopy(optimizer.state_dict()["state"])
        gradients = [g.clone() for g in gradients_of(params)]
        norm = scaler.clip_grad_norm_(optimizer, 0.5)
        scaler.step(optimizer)
        scaler.update()
        if step == 1:
            assert norm.isnan() if bad != bad else norm == INF
            assert all(torch.equal(a, b) for a, b in zip(before[0], params, strict=True))
            torch.testing.assert_close(before[1], optimizer.state_dict()["state"], rtol=0.0, atol=0.0)
            torch.testing.assert_close(gradients, gradients_of(params), rtol=0.0, atol=0.0, equal_nan=True)
    assert scaler.get_scale() == SCALE / 2


@pytest.mark.parametrize("dampening", [0.0, 0.5])
def test_a_skipped_first_step_leaves_no_momentum(dampening):
    params = parameters(64)
    set_gradients(params)
    params[0].grad[0] = INF
    optimizer = torch.optim.SGD(params, 0.1, momentum=0.9, dampening=dampening, fused=True)
    scaler = make_scaler()
    scaler.clip_grad_norm_(optimizer, 0.5)
    scaler.step(optimizer)
    scaler.update()
    assert not optimizer.state
    set_gradients(params, scale=SCALE / 2)
    norm = exact_norm(gradients_of(params), SCALE / 2)
    twins, twin_optimizer = exact_copy(optimizer, params, SCALE / 2, 0.5 / norm)
    scaler.clip_grad_norm_(optimizer, 0.5)
    scaler.step(optimizer)
    twin_optimizer.step()
    assert_close(params, twins)


def test_a_limit_that_float32_cannot_express_skips():
    params = parameters(64)
    params[0].grad = torch.full((64,), 1e38)
    optimizer = fused("sgd", params)
    scaler = make_scaler()
    before = params[0].detach().clone()
    scaler.clip_grad_norm_(optimizer, 0.5)  # 1024 * 64 * ... / 0.5 is beyond float32
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(before, params[0]) and scaler.get_scale() == SCALE / 2


def test_without_gradients_nothing_is_clipped():
    params = parameters(64)
    optimizer = fused("sgd", params)
    assert make_scaler().clip_grad_norm_(optimizer, 0.5) == 0


def test_a_scheduler_may_wrap_the_step():
    params = parameters(64)
    set_gradients(params)
    optimizer = fused("sgd", params)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    twins = clipped_step(make_scaler(), optimizer, params, 0.25)
    assert_close(params, twins)


@pytest.mark.parametrize("name", FUSED)
def test_a_step_without_clip_is_torchs_to_the_bit_and_reads_only(name):
    ours, theirs = parameters(300, (7, 11), 5), parameters(300, (7, 11), 5)
    optimizers = fused(name, ours), fused(name, theirs)
    scalers = make_scaler(), torch.amp.GradScaler("cpu", init_scale=SCALE)
    scalers[1].scale(torch.ones(()))
    for step in range(4):
        for params, optimizer, scaler in zip((ours, theirs), optimizers, scalers, strict=True):
            set_gradients(params, seed=step)
            if step == 2:
                params[0].grad[0] = INF
            versions = [p.grad._version for p in params[:2]]
            scaler._check_inf_per_device(optimizer)
            assert versions == [p.grad._version for p in params[:2]]
            scaler.step(optimizer)
            scaler.update()
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=0.0)
        gradients = [gradients_of(ours), gradients_of(theirs)]
        torch.testing.assert_close(*gradients, rtol=0.0, atol=0.0)
    assert scalers[0].state_dict() == scalers[1].state_dict()


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_copy_that_is_no_longer_amp_aware_is_clipped_all_the_same(name):
    """torch's copies lack `_step_supports_amp_scaling`, and are stepped as ordinary optimizers."""
    optimizer = copy.deepcopy(fused(name, parameters(300, (7, 11))))
    params = optimizer.param_groups[0]["params"]
    assert optimizer.param_groups[0]["fused"] and not hasattr(optimizer, "_step_supports_amp_scaling")
    set_gradients(params)
    twins, twin_optimizer = exact_copy(optimizer, params, SCALE, 0.5 / exact_norm(gradients_of(params), SCALE))
    scaler = make_scaler()
    scaler.clip_grad_norm_(optimizer, 0.5)
    scaler.step(optimizer)
    twin_optimizer.step()
    assert_close(params, twins)


def test_no_signature_is_looked_up_for_a_clip(monkeypatch):
    """It takes as long as a pass over a thousand small gradients."""
    params = parameters(300, (7, 11))
    optimizer = fused("adamw", params)
    set_gradients(params)
    monkeypatch.setattr("inspect.signature", lambda *_: pytest.fail("a signature was looked up"))
    make_scaler().clip_grad_norm_(optimizer, 0.5)
