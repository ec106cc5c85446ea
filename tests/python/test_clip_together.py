"""What a clip has found binds all that comes after it in the iteration, whoever steps and by whatever route; divisors,
modes and lists of gradients that are out of the ordinary. Numbers are small enough to be exact."""

import math

import pytest
import torch

import ampscaler
from clip_cases import INF, NAN, make_scaler

SGD = torch.optim.SGD


class Plain(torch.Tensor):
    """A subclass that changes nothing, but goes torch's way."""


class TakesAttributes(SGD):
    """Divides and skips by itself, by the attributes."""

    _step_supports_amp_scaling = True

    def step(self, closure=None):
        if self.found_inf.item():
            return
        for parameter in self.param_groups[0]["params"]:
            with torch.no_grad():
                parameter -= parameter.grad / (1 if self.grad_scale is None else self.grad_scale)


class TakesTheScaler(SGD):
    """The same by the older protocol."""

    _step_supports_amp_scaling = True

    def step(self, closure=None, *, grad_scaler=None):
        if sum(flag.item() for flag in grad_scaler._check_inf_per_device(self).values()):
            return
        for parameter in self.param_groups[0]["params"]:
            with torch.no_grad():
                parameter -= parameter.grad / grad_scaler._get_scale_async()


def fused(params, lr):
    return SGD(params, lr, fused=True)


KINDS = [SGD, fused, TakesAttributes, pytest.param(TakesTheScaler, marks=pytest.mark.filterwarnings("ignore"))]


def parameter_with(*gradient):
    parameter = torch.nn.Parameter(torch.zeros(len(gradient)))
    parameter.grad = torch.tensor(gradient)
    return parameter


@pytest.mark.parametrize("bad", [INF, NAN])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["plain", "function mode", "subclass"])
def test_a_joint_clip_with_bad_gradients_makes_every_step_a_skip(kind, bad, way):
    good, other = parameter_with(4.0, 4.0), parameter_with(bad, 1.0)
    if way == "subclass":
        other.grad = other.grad.as_subclass(Plain)
    optimizers = [kind([good], 1.0), SGD([other], 1.0)]
    scaler = make_scaler(2.0)
    if way == "function mode":
        with torch.device("cpu"):
            scaler.clip_grad_norm_(optimizers, 1.0)
    else:
        scaler.clip_grad_norm_(optimizers, 1.0)
    assert not scaler.is_finite(optimizers[0])
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert not good.any() and not other.any() and scaler.get_scale() == 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda scaler, optimizer: scaler.unscale_(optimizer),
        lambda scaler, optimizer: scaler.clip_grad_value_(optimizer, 1.0),
        lambda scaler, optimizer: scaler.clip_grad_norm_(optimizer, 1.0),
    ],
    ids=["unscale_", "clip_grad_value_", "clip_grad_norm_"],
)
@pytest.mark.parametrize("policy", [None, ampscaler.ScalePolicy(fix_upstream=True)], ids=["", "mended"])
def test_what_comes_after_a_joint_clip_does_not_forget_its_flag(call, policy):
    good, bad = parameter_with(4.0, 4.0), parameter_with(INF, 1.0)
    optimizer = fused([good], 1.0)
    scaler = make_scaler(2.0, policy=policy)
    scaler.clip_grad_norm_([optimizer, SGD([bad], 1.0)], 1.0)
    call(scaler, optimizer)
    assert not scaler.is_finite(optimizer)
    scaler.step(optimizer)
    assert not good.any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_coefficient_that_float32_cannot_hold_is_a_skip(kind):
    parameter = parameter_with(1e30)
    optimizer = kind([parameter], 1.0)
    scaler = make_scaler(2.0)
    scaler.clip_grad_norm_(optimizer, 1e-20)
    scaler.step(optimizer)
    scaler.update()
    assert parameter.item() == 0.0 and scaler.get_scale() == 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("divisor", [torch.tensor(0.0), torch.tensor(NAN), 1e308])
def test_a_divisor_of_no_use_is_a_skip(kind, divisor):
    parameter = parameter_with(6.0, 8.0)
    optimizer = kind([parameter], 1.0)
    scaler = make_scaler(2.0)
    scaler.set_grad_divisor(divisor)
    scaler.step(optimizer)
    scaler.update()
    assert not parameter.any() and scaler.get_scale() == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_mode_changes_nothing(kind):
    parameter = parameter_with(24.0, 32.0)
    optimizer = kind([parameter], 1.0)
    scaler = make_scaler(2.0)
    scaler.set_grad_divisor(2.0)
    with torch.device("cpu"):
        assert scaler.grad_norm(optimizer).item() == 10.0
        assert scaler.clip_grad_norm_(optimizer, 5.0).item() == 10.0
        assert scaler.clip_grad_norm_(optimizer, 2.5).item() == 5.0
        scaler.step(optimizer)
    assert parameter.tolist() == [-1.5, -2.0]


def test_the_divisor_is_that_of_the_call():
    parameter = parameter_with(6.0, 8.0)
    optimizer = fused([parameter], 1.0)
    scaler = make_scaler(2.0)
    tokens = torch.tensor(2.0)
    scaler.set_grad_divisor(tokens)
    scaler.clip_grad_norm_(optimizer, 1.25)
    tokens += 2  # of the next batch
    scaler.step(optimizer)
    assert parameter.tolist() == [-0.75, -1.0]


@pytest.mark.parametrize("kind", [SGD, fused])
def test_the_norm_after_a_step_is_that_of_the_clipped_gradients(kind):
    parameter = parameter_with(6.0, 8.0)
    optimizer = kind([parameter], 1.0)
    scaler = make_scaler(2.0)
    scaler.clip_grad_norm_(optimizer, 2.5)
    scaler.step(optimizer)
    assert parameter.grad.tolist() == [1.5, 2.0] and scaler.grad_norm(optimizer).item() == 2.5


def test_a_mended_fused_step_applies_the_coefficient_once_to_a_gradient_of_two_parameters():
    first = parameter_with(6.0, 8.0)
    second = torch.nn.Parameter(torch.zeros(2))
    second.grad = first.grad
    optimizer = fused([first, second], 1.0)
    scaler = make_scaler(2.0, policy=ampscaler.ScalePolicy(fix_upstream=True))
    assert scaler.clip_grad_norm_(optimizer, 2.5).item() == 5.0
    scaler.step(optimizer)
    assert first.tolist() == second.tolist() == [-1.5, -2.0]


def test_queries_take_gradients_that_share_memory():
    flat = torch.ones(6)
    first, second = parameter_with(0.0, 0.0, 0.0, 0.0), parameter_with(0.0, 0.0, 0.0, 0.0)
    first.grad, second.grad = flat[:4], flat[2:]
    optimizer = SGD([first, second], 1.0)
    scaler = make_scaler(2.0)
    assert scaler.is_finite(optimizer) and scaler.grad_norm(optimizer).item() == pytest.approx(math.sqrt(2.0))
    of_two = scaler.grad_norm([SGD([first], 1.0), SGD([second], 1.0)])
    assert of_two.item() == pytest.approx(math.sqrt(2.0))


def test_the_norm_of_subclasses_in_different_stages():
    parameters = [parameter_with(6.0, 8.0) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = parameter.grad.as_subclass(Plain)
    first, second = (SGD([parameter], 1.0) for parameter in parameters)
    scaler = make_scaler(2.0)
    scaler.unscale_(first)
    assert scaler.grad_norm([first, second]).item() == pytest.approx(math.sqrt(50.0))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda s, o: s.clip_grad_norm_(o, 1.0, "inf"), "clip_grad_norm_: norm_type: expected a number, got str"),
        (lambda s, o: s.clip_grad_norm_(o, 1.0, eps=None), "clip_grad_norm_: eps: expected a number, got NoneType"),
        (lambda s, o: s.grad_norm(o, "2"), "grad_norm: norm_type: expected a number, got str"),
        (lambda s, o: s.is_finite([]), "is_finite: optimizer: expected an optimizer, got 0 of them"),
        (lambda s, o: s.clip_grad_value_([], 1.0), "clip_grad_value_: optimizer: expected an optimizer, got 0 of them"),
        (lambda s, o: s.set_grad_divisor(torch.tensor(True)), "set_grad_divisor: divisor: expected a real tensor"),
    ],
)
def test_wrong_arguments_are_named(call, text):
    with pytest.raises(TypeError, match=text):
        call(make_scaler(2.0), SGD([parameter_with(1.0)], 1.0))
