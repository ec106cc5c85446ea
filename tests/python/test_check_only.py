"""GradScaler.check_only(): the scale is 1 whatever happens; checks, skips, clips and the divisor work as ever."""

import copy
import pickle

import pytest
import torch

import ampscaler
from ampscaler import _C, ScalePolicy

INF, NAN = float("inf"), float("nan")


def make(gradient=2.0, fused=False, dtype=torch.bfloat16, **options):
    parameter = torch.nn.Parameter(torch.ones(2, dtype=dtype))
    parameter.grad = torch.full((2,), gradient, dtype=dtype)
    scaler = ampscaler.GradScaler.check_only("cpu", **options)
    scaler.scale(torch.ones((), dtype=dtype))
    return scaler, torch.optim.SGD([parameter], lr=1.0, fused=fused), parameter


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_good_steps_are_taken_and_bad_ones_skipped(dtype, fused):
    scaler, optimizer, parameter = make(fused=fused, dtype=dtype)
    scaler.set_growth_interval(1)
    values = []
    for gradient in (2.0, INF, NAN, 3.0):
        parameter.grad = torch.full((2,), gradient, dtype=dtype)
        scaler.step(optimizer)
        scaler.update()
        values.append((parameter[0].item(), scaler.get_scale()))
    assert values == [(-1.0, 1.0), (-1.0, 1.0), (-1.0, 1.0), (-4.0, 1.0)]


def test_the_loss_is_scaled_by_one():
    scaler = ampscaler.GradScaler.check_only("cpu")
    loss = torch.tensor(3.0, dtype=torch.bfloat16, requires_grad=True)
    first, (second,) = scaler.scale(loss), scaler.scale([loss])
    assert first is not loss and first == second == loss
    assert first.dtype is torch.amp.GradScaler("cpu").scale(loss).dtype
    first.backward()
    assert loss.grad == 1.0


def test_the_number_of_clean_steps_is_counted():
    scaler, optimizer, parameter = make()
    counts = []
    for gradient in (1.0, 1.0, INF, 1.0):
        parameter.grad = torch.full((2,), gradient, dtype=torch.bfloat16)
        scaler.step(optimizer)
        scaler.update()
        counts.append(scaler._get_growth_tracker())
    assert counts == [1, 2, 0, 1]


def test_a_new_scale_is_refused():
    scaler, optimizer, _ = make()
    scaler.step(optimizer)
    state, entries = scaler.state_dict(), dict(scaler._per_optimizer_states)
    for wrong in (2.0, 1.0, torch.tensor(2.0)):
        with pytest.raises(
            RuntimeError, match=r"update: new_scale: a scaler made by check_only\(\) keeps its scale of 1"
        ):
            scaler.update(wrong)
    assert scaler.state_dict() == state and dict(scaler._per_optimizer_states) == entries
    scaler.update()
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update."):
        scaler.update()


def test_gradients_are_only_read():
    scaler, optimizer, parameter = make()
    gradient, version = parameter.grad, parameter.grad._version
    scaler.unscale_(optimizer)
    assert parameter.grad is gradient and gradient._version == version and gradient.tolist() == [2.0, 2.0]
    before = _C.host_read_count()
    scaler.clip_grad_norm_(optimizer, INF)
    assert _C.host_read_count() == before


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("explicit", [False, True])
def test_clipping_and_the_divisor_work(fused, explicit):
    scaler, optimizer, parameter = make(gradient=24.0, fused=fused, dtype=torch.float32)
    scaler.set_grad_divisor(torch.tensor(4))
    if explicit:
        scaler.unscale_(optimizer)
        assert parameter.grad.tolist() == [6.0, 6.0]
    assert scaler.clip_grad_norm_(optimizer, 3.0 * 2**0.5).item() == pytest.approx(6.0 * 2**0.5)
    scaler.step(optimizer)
    torch.testing.assert_close(parameter.detach(), torch.full((2,), -2.0))
    scaler.update()
    assert scaler.get_scale() == 1.0


def test_a_clip_rounds_once():
    scaler, optimizer, parameter = make(gradient=1.7)
    exact = parameter.grad.double()
    scaler.clip_grad_norm_(optimizer, 0.3 * float(exact.norm()))
    assert torch.equal(parameter.grad, (exact * 0.3).bfloat16())


def test_states_travel():
    scaler = make()[0]
    state = scaler.state_dict()
    assert state == torch.amp.GradScaler("cpu", init_scale=1.0).state_dict()
    scaler.load_state_dict(torch.amp.GradScaler("cpu").state_dict())
    assert scaler.get_scale() == 1.0
    other = torch.amp.GradScaler("cpu")
    other.load_state_dict(state)
    assert other.get_scale() == 1.0


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_only_check_too(clone):
    scaler = clone(make()[0])
    scaler.scale(torch.ones(()))
    with pytest.raises(RuntimeError, match="check_only"):
        scaler.update(2.0)
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), INF)
    scaler.step(torch.optim.SGD([parameter]))
    scaler.update()
    assert scaler.get_scale() == 1.0


def test_a_policy_may_say_more_but_not_another_scale():
    assert make(policy=ScalePolicy(min_scale=0.5, max_scale=2.0))[0].get_scale() == 1.0
    for wrong in (ScalePolicy(min_scale=2.0), ScalePolicy(max_scale=0.5)):
        with pytest.raises(
            ValueError, match="check_only: policy: expected limits that admit a scale of 1, got ScalePolicy"
        ):
            ampscaler.GradScaler.check_only("cpu", policy=wrong)
    with pytest.raises(TypeError, match="policy: expected a ScalePolicy"):
        ampscaler.GradScaler.check_only("cpu", policy=1.0)
    scaler, _, parameter = make(policy=ScalePolicy(fix_upstream=True))
    twice = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    twice.grad = parameter.grad
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(torch.optim.SGD([parameter, twice]), lambda: 0.0)


def test_float16_is_a_choice_here_too():
    scaler, optimizer, parameter = make(dtype=torch.float16)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients."):
        scaler.step(optimizer)
    scaler, optimizer, parameter = make(dtype=torch.float16, fp16_grads="in_place")
    scaler.step(optimizer)
    assert parameter.tolist() == [-1.0, -1.0]


def test_subclasses_make_their_own():
    class Sub(ampscaler.GradScaler):
        pass

    assert type(Sub.check_only("cpu")) is Sub
