"""ScalePolicy(fix_upstream=True) knows gradients and optimizers by what they are, here beside torch's values.

A gradient is divided once however often it is mentioned (W9). Entries belong to optimizers, not to addresses (W14).
"""

import pytest
import torch

from ampscaler import _C
from fix_upstream_cases import INF, is_picklable, ours, parameter, sgd, shared, theirs

# ---- W9: a gradient object is divided once per mention ----


GROUPINGS = {
    "one group": lambda a, b, **o: [sgd(a, b, **o)],
    "two groups": lambda a, b, **o: [torch.optim.SGD([{"params": [a]}, {"params": [b]}], lr=1.0, **o)],
    "two optimizers": lambda a, b, **o: [sgd(a, **o), sgd(b, **o)],
}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_w9_a_gradient_is_divided_once(grouping, fused):
    def run(scaler):
        a, b = shared()
        for optimizer in GROUPINGS[grouping](a, b, fused=fused):
            scaler.step(optimizer)
        scaler.update()
        return 1.0 - a[0].item(), 1.0 - b[0].item(), a.grad[0].item()

    assert run(theirs()) == ((4.0, 1.0, 1.0) if fused or grouping == "two optimizers" else (1.0, 1.0, 1.0))
    assert run(ours()) == (4.0, 4.0, 4.0)


@pytest.mark.parametrize("first", ["fused", "ordinary"])
def test_w9_between_a_fused_and_an_ordinary_optimizer(first):
    a, b = shared()
    optimizers = [sgd(a, fused=first == "fused"), sgd(b, fused=first != "fused")]
    scaler = ours()
    for optimizer in optimizers:
        scaler.step(optimizer)
    assert (a[0], b[0], a.grad[0]) == (-3.0, -3.0, 4.0)


def test_w9_a_skipped_fused_step_has_divided_nothing():
    a, b = shared()
    bad = parameter(INF)
    scaler = ours()
    scaler.step(sgd(a, bad, fused=True))
    before = _C.host_read_count()
    scaler.unscale_(sgd(b))
    assert (a[0], b.grad[0]) == (1.0, 4.0)
    assert _C.host_read_count() - before == 1, "only the device knows whether the step was skipped"


def test_w9_a_shared_overflow_skips_both():
    a, b = shared(INF)
    scaler = ours()
    for optimizer in (sgd(a), sgd(b)):
        scaler.step(optimizer)
    assert (a[0], b[0]) == (1.0, 1.0)


@pytest.mark.parametrize("fused", [False, True])
def test_w9_a_gradient_that_was_filled_again_is_scaled_again(fused):
    def run(scaler):
        a, b = shared()
        first, second = sgd(a, fused=fused), sgd(b, fused=fused)
        scaler.step(first)
        b.grad.zero_()
        b.grad.add_(16.0)  # what another backward pass does
        scaler.step(second)
        return b[0].item()

    assert run(theirs()) == run(ours()) == -3.0


@pytest.mark.parametrize("fused", [False, True])
def test_w9_clipping_counts_as_dividing(fused):
    a, b = shared(16.0)
    scaler = ours()
    first, second = sgd(a), sgd(b, fused=fused)
    assert scaler.clip_grad_norm_(first, 1.0).item() == pytest.approx(32**0.5)
    norm = scaler.clip_grad_norm_(second, INF)
    for optimizer in (first, second):
        scaler.step(optimizer)
    assert norm.item() == pytest.approx(1.0)
    torch.testing.assert_close(a.detach(), torch.full((2,), 1.0 - 0.5**0.5))
    assert torch.equal(a, b)


def test_w9_one_clip_of_optimizers_that_share_a_gradient_is_refused():
    a, b = shared()
    scaler = ours()
    with pytest.raises(ValueError, match="share memory"):
        scaler.clip_grad_norm_([sgd(a), sgd(b)], 1.0)
    assert a.grad.tolist() == [16.0, 16.0] and is_picklable(scaler)


def test_w9_nothing_is_remembered_after_update():
    a, b = shared()
    scaler = ours()
    scaler.step(sgd(a))
    scaler.update()
    with torch.no_grad():
        a.grad = b.grad = None
    b.grad = torch.full((2,), 16.0)
    scaler.unscale_(sgd(b))
    assert b.grad.tolist() == [4.0, 4.0]


# ---- W14: entries are found by an address that a new optimizer may have ----


class Plain:
    """The least that a scaler takes for an optimizer; dies at once when dropped."""

    def __init__(self, *parameters):
        self.param_groups = [{"params": list(parameters)}]

    def step(self):
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.sub_(p.grad)


def at_the_address_of_a_stepped_one(scaler, gradient):
    """A fresh optimizer where one lived that has stepped with inf."""
    for _ in range(100):
        first = Plain(parameter(INF))
        scaler.step(first)
        address = id(first)
        del first
        second = Plain.__new__(Plain)
        if id(second) == address:
            second.__init__(parameter(gradient))
            return second
    raise AssertionError("no optimizer came to the address")


def test_w14_an_optimizer_at_a_used_address_starts_afresh():
    scaler = theirs()
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last update\(\)."):
        scaler.step(at_the_address_of_a_stepped_one(scaler, 8.0))
    scaler = ours()
    optimizer = at_the_address_of_a_stepped_one(scaler, 8.0)
    assert scaler._found_inf_per_device(optimizer) == {}
    scaler.step(optimizer)
    assert optimizer.param_groups[0]["params"][0].tolist() == [-1.0, -1.0]
    scaler.update()
    assert scaler.get_scale() == 2.0, "what the first one found counts"
    assert not scaler._per_optimizer_states


def test_w14_an_optimizer_that_cannot_be_referenced_weakly_works_as_in_torch():
    class Slotted(Plain):
        __slots__ = ()

    class Bare:
        __slots__ = ("param_groups",)
        __init__, step = Plain.__init__, Plain.step

    assert Bare.__weakrefoffset__ == 0 < Slotted.__weakrefoffset__
    for cls in (Slotted, Bare):
        p = parameter(8.0)
        optimizer, scaler = cls(p), ours()
        scaler.step(optimizer)
        assert p.tolist() == [-1.0, -1.0]
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.step(optimizer)
