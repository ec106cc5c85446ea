"""The argument fp16_grads of GradScaler: float16 gradients of ordinary and fused optimizers, against float64."""

import pytest
import torch

import ampscaler
from clip_cases import require_right_float16_steps, ulp

MODES = ["error", "in_place", "in_optimizer"]
SCALE = 1024.0


def make(fp16_grads, fused=False, scale=SCALE, values=None):
    """A scaler that is ready, an SGD with learning rate 1, and its float16 parameter of zeros with scaled gradients."""
    torch.manual_seed(0)
    gradient = torch.randn(4000).mul(50).half() if values is None else torch.tensor(values).half()
    parameter = torch.nn.Parameter(torch.zeros_like(gradient))
    parameter.grad = gradient
    scaler = ampscaler.GradScaler("cpu", init_scale=scale, fp16_grads=fp16_grads)
    scaler.scale(torch.ones(()))
    return scaler, torch.optim.SGD([parameter], lr=1.0, fused=fused), parameter


def assert_rounded_once(actual, exact):
    # 0.501 for the factor, which is rounded to float32.
    assert ((actual.double() - exact).abs() <= 0.501 * ulp(exact)).all()


def test_in_place_unscales_and_rounds_once():
    for scale in (SCALE, 3000.0):
        scaler, optimizer, parameter = make("in_place", scale=scale)
        exact = parameter.grad.double() / scale
        scaler.unscale_(optimizer)
        assert parameter.grad.dtype is torch.float16
        assert_rounded_once(parameter.grad, exact)


def test_in_place_clips_with_one_rounding():
    scaler, optimizer, parameter = make("in_place")
    before = parameter.grad.clone()
    exact = before.double() / SCALE
    limit = 0.3 * float(exact.norm())
    norm = scaler.clip_grad_norm_(optimizer, limit)
    torch.testing.assert_close(norm.double(), exact.norm(), rtol=2e-7, atol=0.0)
    exact = exact * (limit / exact.norm())
    assert_rounded_once(parameter.grad, exact)
    twice = (before / SCALE) * (limit / norm)  # unscale_ and then torch's clip
    assert not ((twice.double() - exact).abs() <= 0.501 * ulp(exact)).all()


@pytest.mark.parametrize("how", ["step", "unscale_", "clip", "value"])
@pytest.mark.parametrize("fused", [False, True])
def test_in_place_steps_with_true_gradients(how, fused):
    scaler, optimizer, parameter = make("in_place", fused)
    exact = parameter.grad.double() / SCALE
    if how == "unscale_":
        scaler.unscale_(optimizer)
    elif how == "clip":
        scaler.clip_grad_norm_(optimizer, 0.5 * float(exact.norm()))
        exact = exact * 0.5
    elif how == "value":
        scaler.clip_grad_value_(optimizer, 0.02)
        exact = exact.clamp(-0.02, 0.02)
    if fused:
        require_right_float16_steps()
    scaler.step(optimizer)
    scaler.update()
    assert ((parameter.double() + exact).abs() <= 1.01 * ulp(exact)).all()


def test_in_place_sees_what_float16_cannot_hold():
    for value, scale in ((float("inf"), SCALE), (60000.0, 0.25)):
        scaler, optimizer, parameter = make("in_place", scale=scale, values=[1.0, value])
        scaler.step(optimizer)
        scaler.update()
        assert parameter.tolist() == [0.0, 0.0] and scaler.get_scale() == scale / 2


def test_a_clip_in_place_leaves_gradients_alone_beside_an_inf():
    scaler, optimizer, parameter = make("in_place", values=[1024.0, float("inf")])
    scaler.clip_grad_norm_(optimizer, 0.5)
    assert parameter.grad.tolist() == [1024.0, float("inf")]
    scaler.step(optimizer)
    assert not parameter.any()


def test_in_place_takes_mixed_lists():
    scaler, optimizer, parameter = make("in_place", values=[1024.0, 2048.0])
    single = torch.nn.Parameter(torch.zeros(2))
    single.grad = torch.full((2,), 3072.0)
    optimizer.add_param_group({"params": [single]})
    assert scaler.clip_grad_norm_(optimizer, 100.0).item() == pytest.approx(23**0.5)
    assert parameter.grad.tolist() == [1.0, 2.0] and single.grad.tolist() == [3.0, 3.0]


CALLS = {
    "unscale_": lambda scaler, optimizer: scaler.unscale_(optimizer),
    "step": lambda scaler, optimizer: scaler.step(optimizer),
    "clip": lambda scaler, optimizer: scaler.clip_grad_norm_(optimizer, 1.0),
    "value": lambda scaler, optimizer: scaler.clip_grad_value_(optimizer, 1.0),
}


@pytest.mark.parametrize("mode", ["error", "in_optimizer"])
@pytest.mark.parametrize("call", CALLS)
def test_ordinary_optimizers_are_refused_otherwise(mode, call):
    scaler, optimizer, parameter = make(mode)
    before = parameter.grad.clone()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients."):
        CALLS[call](scaler, optimizer)
    assert torch.equal(parameter.grad, before) and not parameter.any()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("clip", [False, True])
def test_fused_optimizers_take_them_in_every_mode_but_clip_them_only_after_opting_in(mode, clip):
    scaler, optimizer, parameter = make(mode, fused=True)
    exact = parameter.grad.double() / SCALE
    if clip and mode == "error":
        with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients."):
            scaler.clip_grad_norm_(optimizer, 1.0)
    elif clip:
        scaler.clip_grad_norm_(optimizer, 0.25 * float(exact.norm()))
        exact = exact * 0.25
    require_right_float16_steps()
    scaler.step(optimizer)
    scaler.update()
    assert ((parameter.double() + exact).abs() <= 1.01 * ulp(exact)).all()


def test_in_place_notices_what_the_clip_itself_takes_out_of_range():
    scaler, optimizer, parameter = make("in_place", scale=0.25, values=[30000.0, 1.0])
    assert scaler.clip_grad_norm_(optimizer, 1e6).item() == pytest.approx(120000.0, rel=1e-6)
    scaler.step(optimizer)
    scaler.update()
    assert not parameter.any() and scaler.get_scale() == 0.125


@pytest.mark.parametrize("mode", ["error", "in_optimizer"])
def test_unscaling_a_fused_optimizer_is_refused_as_by_torch(mode):
    scaler, optimizer, _ = make(mode, fused=True)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients."):
        scaler.unscale_(optimizer)


def test_the_modes_hold_together_with_a_divisor():
    scaler, optimizer, parameter = make("in_place", values=[8192.0, 4096.0])
    scaler.set_grad_divisor(4.0)
    scaler.step(optimizer)
    assert parameter.tolist() == [-2.0, -1.0]
    scaler, optimizer, _ = make("error")
    scaler.set_grad_divisor(4.0)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients."):
        scaler.step(optimizer)


@pytest.mark.parametrize("wrong", ["inplace", None, True, ["error"]])
def test_other_values_are_refused(wrong):
    expected = "GradScaler: fp16_grads: expected one of 'error', 'in_place', 'in_optimizer', got"
    with pytest.raises(ValueError, match=expected):
        ampscaler.GradScaler("cpu", fp16_grads=wrong)
    with pytest.raises(ValueError, match=expected):
        ampscaler.GradScaler("cpu", fp16_grads=wrong, policy=ampscaler.ScalePolicy())
