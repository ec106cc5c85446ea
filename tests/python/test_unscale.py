"""GradScaler.unscale(): gradients out of place and with their graph, for penalties on gradients."""

import pytest
import torch

import ampscaler

SCALES = [1024.0, 3000.0]


def make(scale=1024.0, **options):
    scaler = ampscaler.GradScaler("cpu", init_scale=scale, **options)
    scaler.scale(torch.ones(()))
    return scaler


def critic_gradients(scaler, dtype=torch.float32):
    """Gradients of a critic's loss with WGAN-GP's penalty, its value, and how the penalty depends on the input."""
    torch.manual_seed(0)
    critic = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(dtype)
    inputs = torch.randn(32, 6).to(dtype).requires_grad_()
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    score = critic(inputs).sum()
    outer = scaler.scale(score) if scaler else score
    gradients = torch.autograd.grad(outer, inputs, create_graph=True)
    (gradient,) = scaler.unscale(gradients) if scaler else gradients
    penalty = (gradient.norm(dim=1) - 1).square().mean()
    loss = critic(inputs).mean() + 10 * penalty
    (scaler.scale(loss) if scaler else loss).backward()
    if scaler:
        scaler.unscale_(optimizer)
    input_gradient = inputs.grad / scaler.get_scale() if scaler else inputs.grad
    return [penalty.detach(), input_gradient, *(p.grad for p in critic.parameters())]


@pytest.mark.parametrize("scale", SCALES)
def test_a_gradient_penalty_is_that_of_the_unscaled_computation(scale):
    exact = critic_gradients(None, torch.float64)
    for actual in (critic_gradients(make(scale)), critic_gradients(None)):
        for a, e in zip(actual, exact, strict=True):
            torch.testing.assert_close(a.double(), e, rtol=1e-5, atol=1e-6)
    assert exact[0] > 0.1 and all(e.abs().max() > 1e-3 for e in exact)


def test_second_derivatives_pass_through():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    scaler = make()
    (gradient,) = torch.autograd.grad(scaler.scale((x**4).sum()), x, create_graph=True)
    (second,) = torch.autograd.grad(scaler.unscale(gradient).sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), x)
    assert second.tolist() == [12.0, 48.0, 108.0] and third.tolist() == [24.0, 48.0, 72.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_values_are_those_of_a_division(dtype):
    scaled = torch.randn(1000).mul(100).to(dtype)
    before = scaled.clone()
    unscaled = make(3000.0).unscale(scaled)
    atol = 0.51 * 2.0**-24 if dtype is torch.float16 else 0.0
    torch.testing.assert_close(
        unscaled.double(), scaled.double() / 3000.0, rtol=0.51 * torch.finfo(dtype).eps, atol=atol
    )
    assert torch.equal(scaled, before) and unscaled.dtype is dtype


def test_a_tensor_gives_a_tensor_and_an_iterable_a_list():
    scaler, gradient = make(), torch.tensor([2048.0])
    assert scaler.unscale(gradient).tolist() == [2.0]
    for given in ([gradient, None], (gradient, None), iter([gradient, None])):
        first, second = scaler.unscale(given)
        assert first.tolist() == [2.0] and second is None
    assert scaler.unscale([]) == []
    half = scaler.unscale(torch.tensor(2048.0, dtype=torch.float16))
    assert half.dtype is torch.float16 and half == 2.0


def test_a_divisor_counts():
    scaler = make()
    for divisor in (4.0, torch.tensor(4), torch.tensor([4.0])):
        scaler.set_grad_divisor(divisor)
        assert scaler.unscale(torch.tensor([8192.0])).tolist() == [2.0]


def test_the_scaler_stays_as_it_was():
    scaler = make()
    scale = scaler._scale
    scaler.unscale([torch.ones(2)])
    assert scaler._scale is scale and scale._version == 0 and not scaler._per_optimizer_states
    assert "_ampscaler" not in vars(scaler)


def test_a_disabled_scaler_returns_what_it_is_given():
    scaler = ampscaler.GradScaler("cpu", enabled=False)
    for grads in (torch.ones(2), [torch.ones(2), None], "anything"):
        assert scaler.unscale(grads) is grads


def test_what_is_refused():
    with pytest.raises(AssertionError, match="Attempted unscale but _scale is None"):
        ampscaler.GradScaler("cpu").unscale(torch.ones(2))
    with pytest.raises(TypeError, match=r"\[1\]: expected a torch.Tensor or None, got int"):
        make().unscale([torch.ones(2), 3])


def test_it_may_be_called_from_compiled_code():
    scaler = make()
    run = torch.compile(lambda gradient: scaler.unscale(gradient) + 1.0, backend="eager")
    assert run(torch.tensor([2048.0])).tolist() == [3.0]
