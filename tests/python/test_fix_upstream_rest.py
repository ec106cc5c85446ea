"""What stays torch's under ScalePolicy(fix_upstream=True), and what else changes with it."""

import copy
import pickle

import pytest
import torch
from torch.amp.grad_scaler import OptState

import ampscaler
from ampscaler import _C
from fix_upstream_cases import FIX, INF, is_picklable, ours, parameter, ready, sgd, shared, theirs


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("explicit", [False, True])
def test_a_run_without_warts_is_torchs_to_the_bit(fused, explicit):
    def train(make):
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused)
        scaler = make("cpu", init_scale=2.0**24, growth_interval=5)
        scales = []
        for _ in range(40):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = model(torch.randn(32, 8)).float().square().mean()
            scaler.scale(loss).backward()
            if explicit:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales, [p.detach().clone() for p in model.parameters()]

    our_scales, our_parameters = train(lambda *args, **options: ampscaler.GradScaler(*args, **options, policy=FIX))
    their_scales, their_parameters = train(torch.amp.GradScaler)
    assert our_scales == their_scales and min(our_scales) < 2.0**24
    assert all(torch.equal(a, b) for a, b in zip(our_parameters, their_parameters, strict=True))


def test_the_order_of_calls_is_torchs():
    scaler, optimizer = ours(), sgd(parameter(8.0))
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called on this optimizer since"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step\(\)."):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last update\(\)."):
        scaler.step(optimizer)
    scaler.update()
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update."):
        scaler.update()
    unused = ampscaler.GradScaler("cpu", policy=FIX)
    for method in (unused.step, unused.unscale_):
        with pytest.raises(AssertionError, match="but _scale is None"):
            method(optimizer)
    assert is_picklable(unused)


@pytest.mark.parametrize(("fused", "waits"), [(False, 1), (True, 0)])
def test_a_step_waits_no_more_than_it_must(fused, waits):
    before = _C.host_read_count()
    ours().step(sgd(parameter(8.0), fused=fused))
    assert _C.host_read_count() - before == waits


def test_versions_are_bumped_by_unscaling_unlike_in_torch():
    for scaler, bumps in ((theirs(), False), (ours(), True)):
        p = parameter(8.0)
        version = p.grad._version
        scaler.unscale_(sgd(p))
        assert (p.grad._version > version) is bumps


def test_an_override_of_the_way_to_the_gradients_is_honoured():
    calls = []

    class Sub(ampscaler.GradScaler):
        def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
            calls.append(inv_scale.item())
            return super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)

    for fused, factor in ((False, 0.25), (True, 1.0)):
        p = parameter(8.0)
        ours(cls=Sub).step(sgd(p, fused=fused))
        assert p.tolist() == [-1.0, -1.0] and calls.pop() == factor


def test_stages_that_trainers_write_are_taken_as_by_torch():
    for fused in (False, True):
        results = []
        for scaler in (theirs(), ours()):
            p = parameter(8.0)
            optimizer = sgd(p, fused=fused)
            scaler.unscale_(optimizer)
            scaler._per_optimizer_states[id(optimizer)]["stage"] = 2
            scaler.unscale_(optimizer)
            results.append((p.grad.tolist(), scaler._per_optimizer_states[id(optimizer)]["stage"]))
            scaler._per_optimizer_states[id(optimizer)]["stage"] = 2
            scaler.step(optimizer)
            results[-1] += (p.tolist(),)
        assert results[1] == ([2.0, 2.0], OptState.UNSCALED, [0.5, 0.5] if fused else [-1.0, -1.0])
        assert results[0] == ([0.5, 0.5], OptState.UNSCALED, [0.875, 0.875] if fused else [0.5, 0.5])


def test_flags_of_any_shape_count():
    scaler, optimizer = ours(), sgd(parameter(8.0))
    scaler.unscale_(optimizer)
    two = {torch.device("cpu"): torch.zeros(1), torch.device("meta"): torch.ones(())}
    scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = two
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0


def test_an_override_of_the_scale_is_honoured():
    class Sub(ampscaler.GradScaler):
        def _get_scale_async(self):
            return torch.tensor(2.0)

    p = parameter(8.0)
    ours(cls=Sub).step(sgd(p, fused=True))
    assert p.tolist() == [-3.0, -3.0]


def test_functional_transforms_and_modes_go_through_torch():
    def unscaled(gradient):
        p = parameter(8.0)
        p.grad = gradient
        scaler.unscale_(sgd(p))
        scaler.update(4.0)
        return p.grad

    scaler = ours()
    with torch._subclasses.FakeTensorMode():
        fake = ours()
        fake.unscale_(sgd(parameter(8.0)))
    assert type(fake._scale) is torch._subclasses.FakeTensor

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen: list[str] = []
    with Mode():
        assert unscaled(torch.full((2,), 8.0)).tolist() == [2.0, 2.0]
    assert "aten._amp_foreach_non_finite_check_and_unscale_.default" in seen


def test_tensor_subclasses_go_through_torch():
    class Tagged(torch.Tensor):
        pass

    p = parameter(torch.full((2,), 8.0).as_subclass(Tagged))
    scaler = ours()
    scaler.step(sgd(p))
    assert p.tolist() == [-1.0, -1.0]


def test_the_older_protocol_gets_the_scaler():
    class Older(torch.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure=None, *, grad_scaler=None):
            if grad_scaler._check_inf_per_device(self)[torch.device("cpu")] == 0:
                self.param_groups[0]["params"][0].grad.div_(grad_scaler._get_scale_async())
                super().step(closure)

    p = parameter(8.0)
    scaler, optimizer = ours(), Older([p], lr=1.0)
    with pytest.warns(FutureWarning):
        scaler.step(optimizer)
    assert p.tolist() == [-1.0, -1.0]
    assert scaler._own_entry(optimizer)["stage"] is OptState.STEPPED
    scaler.update()


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_are_mended_too_and_share_nothing(clone):
    scaler = ours()
    scaler.set_grad_divisor(2.0)
    scaler.step(sgd(parameter(INF)))
    scaler.update()
    other = clone(scaler)
    scaler.set_grad_divisor(8.0)
    assert other._ampscaler.divisor is None and other._ampscaler.policy == FIX
    a, b = shared(8.0)
    ready(other).step(sgd(a, b))
    assert (a[0], b[0]) == (-3.0, -3.0)


def test_a_disabled_scaler_steps_with_a_closure_too():
    p = parameter(8.0)
    scaler = ampscaler.GradScaler("cpu", enabled=False, policy=FIX)
    scaler.step(sgd(p), lambda: p.grad.sum())
    assert p.tolist() == [-7.0, -7.0]
