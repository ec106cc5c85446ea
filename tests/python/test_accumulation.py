"""Micro-batches: K backward passes, one divisor, one step, equal to the step of the whole batch in float64.

The losses are sums over tokens, so the divisor is their number, which in one case only the device knows.
"""

import copy

import pytest
import torch

import ampscaler
from ampscaler import _C

TOKENS = [3, 17, 8, 1]  # per micro-batch
INF, NAN = float("inf"), float("nan")


def data():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
    inputs = torch.randn(sum(TOKENS), 6)
    return model, inputs, inputs.sum(dim=1, keepdim=True)


def loss_of(model, inputs, targets):
    return (model(inputs) - targets).square().sum()


def exact_change(max_norm=INF):
    """What a step with learning rate 1 on the mean loss of the whole batch changes, in float64."""
    model, inputs, targets = data()
    model = model.double()
    (loss_of(model, inputs.double(), targets.double()) / len(inputs)).backward()
    gradients = [p.grad for p in model.parameters()]
    norm = torch.nn.utils.get_total_norm(gradients)
    return [-g * min(1.0, max_norm / float(norm)) for g in gradients], norm


def accumulate(scaler, model, inputs, targets):
    for x, y in zip(inputs.split(TOKENS), targets.split(TOKENS), strict=True):
        scaler.scale(loss_of(model, x, y)).backward()


def changes(model, before):
    return [(p.detach() - b).double() for p, b in zip(model.parameters(), before, strict=True)]


DIVISORS = {
    "int": lambda: sum(TOKENS),
    "float": lambda: float(sum(TOKENS)),
    "count on the device": lambda: torch.tensor(TOKENS).sum(),
    "weights on the device": lambda: torch.tensor(TOKENS, dtype=torch.float32).sum(0, keepdim=True),
}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("how", ["plain", "unscale_", "clip", "unscale_ and clip"])
@pytest.mark.parametrize("divisor", DIVISORS)
@pytest.mark.parametrize("scale", [1024.0, 3000.0])
def test_micro_batches_are_the_whole_batch(fused, how, divisor, scale):
    model, inputs, targets = data()
    before = copy.deepcopy(list(model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, fused=fused)
    scaler = ampscaler.GradScaler("cpu", init_scale=scale)
    accumulate(scaler, model, inputs, targets)
    scaler.set_grad_divisor(DIVISORS[divisor]())
    max_norm = 0.5 if "clip" in how else INF
    expected, norm = exact_change(max_norm)
    if "unscale_" in how:
        scaler.unscale_(optimizer)
    if "clip" in how:
        torch.testing.assert_close(scaler.clip_grad_norm_(optimizer, max_norm).double(), norm, rtol=1e-5, atol=0.0)
        assert norm > max_norm
    reads = _C.host_read_count()
    scaler.step(optimizer)
    scaler.update()
    assert _C.host_read_count() - reads <= (0 if fused else 1)
    torch.testing.assert_close(changes(model, before), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("clip", [False, True])
def test_one_divisor_counts_for_several_optimizers(clip):
    model, inputs, targets = data()
    before = copy.deepcopy(list(model.parameters()))
    first, last = (list(model[i].parameters()) for i in (0, 2))
    optimizers = [torch.optim.SGD(first, lr=1.0, fused=True), torch.optim.SGD(last, lr=1.0)]
    scaler = ampscaler.GradScaler("cpu", init_scale=1024.0)
    accumulate(scaler, model, inputs, targets)
    scaler.set_grad_divisor(torch.tensor(sum(TOKENS)))
    if clip:
        scaler.clip_grad_norm_(optimizers, 0.5)
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    expected, _ = exact_change(0.5 if clip else INF)
    torch.testing.assert_close(changes(model, before), expected, rtol=1e-4, atol=1e-6)


def test_weights_that_sum_to_one_need_no_divisor():
    model, inputs, targets = data()
    before = copy.deepcopy(list(model.parameters()))
    scaler = ampscaler.GradScaler("cpu", init_scale=1024.0)
    for x, y in zip(inputs.split(TOKENS), targets.split(TOKENS), strict=True):
        scaler.scale(loss_of(model, x, y) / len(inputs)).backward()
    scaler.step(torch.optim.SGD(model.parameters(), lr=1.0))
    torch.testing.assert_close(changes(model, before), exact_change()[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("fix_upstream", [False, True])
@pytest.mark.parametrize("how", ["plain", "unscale_", "clip"])
@pytest.mark.parametrize("divisor", [0.0, -31.0, INF, NAN])
def test_a_divisor_of_no_use_skips_and_backs_off(divisor, how, fix_upstream):
    model, inputs, targets = data()
    before = copy.deepcopy(list(model.parameters()))
    optimizers = [torch.optim.AdamW(model[i].parameters(), fused=fused) for i, fused in ((0, True), (2, False))]
    policy = ampscaler.ScalePolicy(fix_upstream=fix_upstream)
    scaler = ampscaler.GradScaler("cpu", init_scale=1024.0, policy=policy)
    accumulate(scaler, model, inputs, targets)
    scaler.set_grad_divisor(torch.tensor(divisor))
    for optimizer in optimizers:
        if how == "unscale_":
            scaler.unscale_(optimizer)
        elif how == "clip":
            scaler.clip_grad_norm_(optimizer, 1.0)
        scaler.step(optimizer)
    scaler.update()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert scaler.get_scale() == 512.0


def test_the_divisor_lasts_until_update():
    model, inputs, targets = data()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = ampscaler.GradScaler("cpu", init_scale=1024.0)
    accumulate(scaler, model, inputs, targets)
    scaler.set_grad_divisor(1e6)
    scaler.set_grad_divisor(float(sum(TOKENS)))  # the last one counts
    scaler.step(optimizer)
    scaler.update()
    before = copy.deepcopy(list(model.parameters()))
    optimizer.zero_grad()
    scaler.scale(loss_of(model, inputs, targets)).backward()
    true = [-p.grad / 1024.0 for p in model.parameters()]
    scaler.step(optimizer)
    torch.testing.assert_close(changes(model, before), [t.double() for t in true], rtol=1e-5, atol=1e-5)


def test_an_overflow_in_one_micro_batch_skips_the_whole():
    model, inputs, targets = data()
    before = copy.deepcopy(list(model.parameters()))
    inputs[20] = INF
    scaler = ampscaler.GradScaler("cpu", init_scale=1024.0)
    accumulate(scaler, model, inputs, targets)
    scaler.set_grad_divisor(sum(TOKENS))
    scaler.step(torch.optim.SGD(model.parameters(), lr=1.0))
    scaler.update()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert scaler.get_scale() == 512.0
