"""Both scalers refuse in the name of the method called: a bool in place of a number, gradients that share memory."""

import pytest
import torch

from ampscaler import AmpScaler, GradScaler, ScalePolicy

METHODS = {
    "clip_grad_norm_": lambda scaler, optimizer: scaler.clip_grad_norm_(optimizer, 1.0),
    "clip_grad_value_": lambda scaler, optimizer: scaler.clip_grad_value_(optimizer, 1.0),
    "grad_norm": lambda scaler, optimizer: scaler.grad_norm(optimizer),
    "is_finite": lambda scaler, optimizer: scaler.is_finite(optimizer),
}


def ready(cls):
    scaler = cls("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    return scaler


def sgd(*gradients, fused=False):
    parameters = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return torch.optim.SGD(parameters, lr=1.0, fused=fused)


# ---- bools, which Python counts among the ints ----

CLIPS = {
    "max_norm": lambda scaler, value: scaler.clip_grad_norm_(sgd(torch.ones(2)), value),
    "norm_type": lambda scaler, value: scaler.clip_grad_norm_(sgd(torch.ones(2)), 1.0, norm_type=value),
    "eps": lambda scaler, value: scaler.clip_grad_norm_(sgd(torch.ones(2)), 1.0, eps=value),
    "clip_value": lambda scaler, value: scaler.clip_grad_value_(sgd(torch.ones(2)), value),
    "norm_type of grad_norm": lambda scaler, value: scaler.grad_norm(sgd(torch.ones(2)), value),
    "divisor": lambda scaler, value: scaler.set_grad_divisor(value),
}
NUMBERS_IN_CPP = {
    "init_scale": lambda value: AmpScaler("cpu", init_scale=value),
    "growth_interval": lambda value: AmpScaler("cpu", growth_interval=value),
    "set_growth_interval": lambda value: AmpScaler("cpu").set_growth_interval(value),
    "min_scale": lambda value: ScalePolicy(min_scale=value),
    "max_scale": lambda value: ScalePolicy(max_scale=value),
}


@pytest.mark.parametrize("cls", [GradScaler, AmpScaler])
@pytest.mark.parametrize("argument", CLIPS)
def test_a_bool_is_no_number_of_a_method(cls, argument):
    for value in (True, False):
        with pytest.raises(TypeError, match="got bool" if cls is GradScaler else "incompatible function arguments"):
            CLIPS[argument](ready(cls), value)
    CLIPS[argument](ready(cls), 1)


@pytest.mark.parametrize("argument", NUMBERS_IN_CPP)
def test_a_bool_is_no_number_of_a_class_in_cpp(argument):
    with pytest.raises(TypeError, match="incompatible (function|constructor) arguments"):
        NUMBERS_IN_CPP[argument](True)
    NUMBERS_IN_CPP[argument](1)


@pytest.mark.parametrize("name", ["growth_factor", "backoff_factor"])
def test_a_bool_is_no_factor(name):
    scaler = AmpScaler("cpu")
    with pytest.raises(TypeError, match=f"set_{name}.*incompatible function arguments"):
        getattr(scaler, f"set_{name}")(True)
    with pytest.raises(TypeError, match="incompatible constructor arguments"):
        AmpScaler("cpu", **{name: True})


# ---- gradients that share memory ----


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("cls", [GradScaler, AmpScaler])
@pytest.mark.parametrize(
    ("method", "optimizers"), [*((m, 1) for m in METHODS), ("clip_grad_norm_", 2), ("grad_norm", 2)]
)
def test_shared_memory_is_refused_in_the_name_of_the_method(method, optimizers, cls, fused):
    memory = torch.ones(6)
    gradients = [memory[:4], memory[2:]]
    given = sgd(*gradients, fused=fused) if optimizers == 1 else [sgd(gradient, fused=fused) for gradient in gradients]
    if cls is GradScaler and method in ("grad_norm", "is_finite"):
        METHODS[method](ready(cls), given)  # answered by torch's functions
        return
    with pytest.raises(ValueError) as caught:
        METHODS[method](ready(cls), given)
    start = f"ampscaler::{method}: grads: expected tensors with memory of their own, got grads[0] and grads[1]"
    assert str(caught.value).startswith(start)
    assert memory.tolist() == [1.0] * 6


def test_the_operators_speak_for_themselves():
    memory = torch.ones(6)
    with pytest.raises(ValueError, match="^ampscaler::grad_stats: grads: expected tensors with memory of their own"):
        torch.ops.ampscaler.grad_stats([memory[:4], memory[2:]], torch.ones(()))
