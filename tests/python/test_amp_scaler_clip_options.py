"""AmpScaler's clips: what they refuse, a disabled scaler, the divisor, float16 gradients, and check_only."""

import pytest
import torch

from amp_scaler_clip_cases import INF, OwnStep, parameter_with, ready, six_eight
from ampscaler import AmpScaler

SGD = torch.optim.SGD


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"max_norm": 0}, ValueError, "max_norm: expected a number > 0, got 0"),
        ({"max_norm": -1.0}, ValueError, "max_norm: expected a number > 0, got -1"),
        ({"max_norm": float("nan")}, ValueError, "max_norm: expected a number > 0, got nan"),
        ({"max_norm": 1.0, "norm_type": -2.0}, ValueError, "norm_type: expected a number >= 0, got -2"),
        ({"max_norm": 1.0, "eps": -1.0}, ValueError, "eps: expected a finite number >= 0, got -1"),
        ({"max_norm": torch.ones(2)}, RuntimeError, "max_norm"),
        ({"max_norm": "1"}, TypeError, "max_norm"),
    ],
)
@pytest.mark.parametrize("fused", [True, False])
def test_bad_arguments_change_nothing(fused, arguments, error, text):
    scaler, optimizer, parameter = six_eight(fused=fused)
    with pytest.raises(error, match=text):
        scaler.clip_grad_norm_(optimizer, **arguments)
    assert parameter.grad.tolist() == [24.0, 32.0]
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update."):
        scaler.update()


def test_calls_in_the_wrong_order():
    scaler, optimizer, _ = six_eight()
    for method in ("clip_grad_norm_", "clip_grad_value_"):
        with pytest.raises(AssertionError, match=f"Attempted {method} but _scale is None"):
            getattr(AmpScaler("cpu"), method)(optimizer, 1.0)
    scaler.step(optimizer)
    for method in ("clip_grad_norm_", "clip_grad_value_"):
        with pytest.raises(RuntimeError, match=rf"^{method}\(\) is being called after step\(\)\."):
            getattr(scaler, method)(optimizer, 1.0)
    with pytest.raises(RuntimeError, match="set_grad_divisor"):
        scaler.set_grad_divisor(2.0)


def test_an_optimizer_twice_in_a_list():
    scaler, optimizer, parameter = six_eight()
    with pytest.raises(ValueError, match="optimizers: expected different ones"):
        scaler.clip_grad_norm_([optimizer, optimizer], 1.0)
    assert parameter.grad.tolist() == [24.0, 32.0]


def test_an_empty_list_has_the_norm_0():
    assert ready().clip_grad_norm_([], 1.0).item() == 0.0


def test_a_positional_closure_is_refused_like_the_keyword():
    scaler, optimizer, parameter = six_eight()
    for arguments, keywords in (((lambda: 5,), {}), ((), {"closure": lambda: 5})):
        with pytest.raises(RuntimeError, match="Closure use is not currently supported if GradScaler is enabled."):
            scaler.step(optimizer, *arguments, **keywords)
    assert parameter.grad.tolist() == [24.0, 32.0]


@pytest.mark.parametrize("kind", ["Adam", "SGD"])
def test_a_fused_optimizer_without_gradients_is_refused_like_others(kind):
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = getattr(torch.optim, kind)([parameter], lr=1.0, fused=True)
    scaler = ready()
    assert scaler.clip_grad_norm_(optimizer, 1.0).item() == 0.0
    with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer."):
        scaler.step(optimizer)


def test_tensor_subclasses_are_refused_before_anything_is_written():
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            wrapper.inner = inner
            return wrapper

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise AssertionError("nothing may reach it")

    scaler, optimizer, parameter = six_eight()
    subclass = Wrapper(torch.ones(2))
    subclass.grad = Wrapper(torch.ones(2))
    optimizer.param_groups[0]["params"].append(subclass)
    for call in (
        lambda: scaler.clip_grad_norm_(optimizer, 1.0),
        lambda: scaler.clip_grad_value_(optimizer, 1.0),
        lambda: scaler.grad_norm(optimizer),
    ):
        with pytest.raises(NotImplementedError, match="expected plain tensors, got a tensor subclass"):
            call()
    assert parameter.grad.tolist() == [24.0, 32.0]


def test_a_disabled_scaler_clips_gradients_as_they_are():
    scaler = AmpScaler("cpu", enabled=False)
    for options in ({}, {"fused": True}):
        parameter = parameter_with([6.0, 8.0])
        optimizer = SGD([parameter], lr=1.0, **options)
        assert scaler.clip_grad_norm_(optimizer, 5.0).item() == 10.0
        assert parameter.grad.tolist() == [3.0, 4.0]
        scaler.clip_grad_value_(optimizer, 3.5)
        assert scaler.grad_norm(optimizer, INF).item() == 3.5
        assert scaler.is_finite(optimizer)
        assert not scaler.grads_are_scaled(optimizer)
        scaler.step(optimizer)
        assert parameter.tolist() == [-2.0, -2.5]
    with pytest.raises(RuntimeError, match="set_grad_divisor"):
        scaler.set_grad_divisor(2.0)


def train_on(batches, fused, as_tensor):
    torch.manual_seed(3)
    model = torch.nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    scaler = AmpScaler("cpu", init_scale=3000.0)
    tokens = torch.zeros((), dtype=torch.int64)
    for batch in batches:
        scaler.scale(model(batch).square().sum()).backward()
        tokens += batch.shape[0]
    scaler.set_grad_divisor(tokens if as_tensor else tokens.item())
    norm = scaler.clip_grad_norm_(optimizer, 0.5)
    scaler.step(optimizer)
    scaler.update()
    return norm.item(), [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("as_tensor", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_micro_batches_give_the_step_of_the_whole_batch(fused, as_tensor):
    batch = torch.randn(16, 6, generator=torch.Generator().manual_seed(1))
    norm, parameters = train_on(batch.split([1, 9, 6]), fused, as_tensor)
    whole_norm, whole = train_on([batch], fused, as_tensor)
    assert norm == pytest.approx(whole_norm, rel=1e-5)
    for ours, theirs in zip(parameters, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [0.0, -1.0, INF, float("nan")])
def test_a_useless_divisor(bad):
    for optimizer_class, options in ((SGD, {}), (SGD, {"fused": True}), (OwnStep, {})):
        for clip in (True, False):
            scaler, optimizer, parameter = six_eight(optimizer_class, **options)
            with pytest.raises(ValueError, match="set_grad_divisor: divisor: expected a positive finite number"):
                scaler.set_grad_divisor(bad)
            scaler.set_grad_divisor(torch.tensor(bad))
            if clip:
                scaler.clip_grad_norm_(optimizer, 1.0)
            assert not scaler.step(optimizer).applied()
            scaler.update()
            assert (parameter.tolist(), scaler.get_scale()) == ([1.0, 1.0], 2.0)


def half(**options):
    parameter = parameter_with([24.0, 32.0], torch.float16)
    return SGD([parameter], lr=1.0, **options), parameter


@pytest.mark.parametrize("setting", ["error", "in_place", "in_optimizer"])
@pytest.mark.parametrize("fused", [True, False])
def test_float16_gradients(fused, setting):
    scaler = ready(fp16_grads=setting)
    optimizer, parameter = half(fused=fused)
    if setting == "in_place" or (setting == "in_optimizer" and fused):
        assert scaler.clip_grad_norm_(optimizer, 5.0).item() == 10.0
        scaler.step(optimizer)
        assert parameter.tolist() == [-2.0, -3.0]
    else:
        with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients."):
            scaler.clip_grad_norm_(optimizer, 5.0)
        assert parameter.grad.tolist() == [24.0, 32.0]


def test_float16_gradients_that_are_unscaled_in_place():
    scaler, (optimizer, parameter) = ready(fp16_grads="in_place"), half()
    scaler.unscale_(optimizer)
    assert parameter.grad.tolist() == [6.0, 8.0]


def test_an_unknown_setting_for_float16_gradients():
    with pytest.raises(ValueError, match="fp16_grads: expected 'error', 'in_place' or 'in_optimizer', got 'maybe'"):
        AmpScaler("cpu", fp16_grads="maybe")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("fused", [True, False])
def test_check_only_checks_and_clips_at_the_scale_1(fused, dtype):
    scaler = AmpScaler.check_only("cpu")
    scaler.set_growth_interval(1)
    scaler.scale(torch.ones(()))
    parameter = parameter_with([12.0, 16.0], dtype)
    optimizer = SGD([parameter], lr=1.0, fused=fused)
    scaler.set_grad_divisor(2.0)
    assert scaler.clip_grad_norm_(optimizer, 5.0).item() == 10.0
    assert scaler.step(optimizer).applied()
    scaler.update()
    assert (parameter.tolist(), scaler.get_scale()) == ([-2.0, -3.0], 1.0)
    parameter.grad = torch.full_like(parameter, INF)
    assert not scaler.step(optimizer).applied()
    scaler.update()
    assert (parameter.tolist(), scaler.get_scale()) == ([-2.0, -3.0], 1.0)
    scaler.load_state_dict(scaler.state_dict() | {"scale": 64.0})
    assert scaler.get_scale() == 1.0


def test_a_fused_step_divides_a_gradient_of_two_parameters_once():
    scaler = ready(4.0)
    first, second = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))
    first.grad = second.grad = torch.full((2,), 8.0)
    assert scaler.step(torch.optim.SGD([first, second], lr=1.0, fused=True)).applied()
    assert first.tolist() == second.tolist() == [-2.0, -2.0]


def test_an_overflow_by_the_users_factor_is_a_skip():
    scaler, optimizer, parameter = six_eight(fused=True)
    optimizer.grad_scale = torch.tensor(1e-38)
    before = parameter.detach().clone()
    assert not scaler.step(optimizer).applied()
    scaler.update()
    assert torch.equal(parameter, before) and scaler.get_scale() == 2.0
