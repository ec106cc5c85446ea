"""ScalePolicy(fix_upstream=True): what goes wrong in torch's scaler, and what ours does instead.

Each test shows both values. torch's half is asserted too: when a torch comes that mends one of these, the test says so.
"""

import pytest
import torch

from ampscaler import _C
from fix_upstream_cases import INF, is_picklable, ours, parameter, sgd, theirs


@pytest.fixture
def uninitialised_memory_is_nan():
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


# ---- W1: a skipped first step of fused SGD leaves uninitialised memory as momentum ----


@pytest.mark.parametrize("dampening", [0.0, 0.5])
def test_w1_a_skipped_first_step_leaves_no_momentum(uninitialised_memory_is_nan, dampening):
    def run(scaler):
        p = parameter(INF)
        optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9, dampening=dampening, fused=True)
        scaler.step(optimizer)
        scaler.update()
        left = "momentum_buffer" in optimizer.state.get(p, {})
        p.grad = torch.full((2,), scaler.get_scale())
        scaler.step(optimizer)
        return left, p

    left, p = run(theirs())
    assert left and p.isnan().all()
    left, p = run(ours())
    assert not left
    # A zeroed buffer would give 1 - 0.1 * (1 - dampening) = 0.95 where the dampening is 0.5.
    torch.testing.assert_close(p.detach(), torch.full((2,), 0.9), rtol=0.0, atol=1e-7)


def test_w1_costs_a_wait_only_where_buffers_are_created():
    p = parameter(8.0)
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9, fused=True)
    scaler = ours()
    waits = []
    for _ in range(3):
        before = _C.host_read_count()
        scaler.step(optimizer)
        scaler.update()
        waits.append(_C.host_read_count() - before)
        p.grad = torch.full((2,), 8.0)
    assert waits == [1, 0, 0]


# ---- W2: two devices with an overflow add up to 2, and fused optimizers skip on exactly 1 ----


def test_w2_overflows_on_two_devices_skip_the_step():
    def run(scaler):
        p = parameter(8.0)
        optimizer = torch.optim.Adam([p], lr=0.1, fused=True)
        scaler.unscale_(optimizer)
        two = {torch.device("cpu"): torch.ones(()), torch.device("meta"): torch.ones(())}
        scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = two
        scaler.step(optimizer)
        return p[0].item(), optimizer.state[p]["step"].item()

    value, step = run(theirs())
    assert value == pytest.approx(0.9) and step == -1.0
    assert run(ours()) == (1.0, 0.0)


# ---- W3: a raising fused step leaves its attributes behind ----


class RaisesOnce(torch.optim.SGD):
    """A fused SGD whose first step fails, as one does that is out of memory."""

    failed = False

    def step(self, closure=None):
        if not self.failed:
            self.failed = True
            raise MemoryError
        return super().step(closure)


def test_w3_a_step_that_raised_is_retried_with_the_right_scale():
    def run(scaler, **attributes):
        p = parameter(8.0)
        optimizer = RaisesOnce([p], lr=1.0, fused=True)
        vars(optimizer).update(attributes)
        with pytest.raises(MemoryError):
            scaler.step(optimizer)
        left = {name: getattr(optimizer, name) for name in ("grad_scale", "found_inf") if hasattr(optimizer, name)}
        scaler.step(optimizer)
        return left, 1.0 - p[0].item()

    left, applied = run(theirs())
    assert set(left) == {"grad_scale", "found_inf"} and applied == 0.5
    assert run(ours()) == ({}, 2.0)
    assert run(ours(), grad_scale=2.0) == ({"grad_scale": 2.0}, 1.0), "the user's own factor stays"


def test_w3_a_retry_looks_at_the_gradients_anew():
    p = parameter(INF)
    optimizer = RaisesOnce([p], lr=1.0, fused=True)
    scaler = ours()
    with pytest.raises(MemoryError):
        scaler.step(optimizer)
    p.grad = torch.full((2,), 8.0)
    scaler.step(optimizer)
    assert p.tolist() == [-1.0, -1.0]


# ---- W5: an overflow by the division itself is not seen ----


@pytest.mark.parametrize("fused", [False, True])
def test_w5_an_overflow_by_unscaling_is_found(fused):
    def run(scaler):
        p = parameter(3e38)
        scaler.step(sgd(p, fused=fused))
        scaler.update()
        return p[0].item(), scaler.get_scale()

    assert run(theirs(0.25)) == (-INF, 0.25)
    assert run(ours(0.25)) == (1.0, 0.125)


@pytest.mark.parametrize("fused", [False, True])
def test_w5_what_fits_its_dtype_is_no_overflow(fused):
    p, large = parameter(8.0), parameter(1e300, torch.float64)
    scaler = ours(0.25)
    scaler.step(sgd(p, large, fused=fused))
    assert p.tolist() == [-31.0, -31.0] and large.tolist() == [1.0 - 4e300] * 2


@pytest.mark.parametrize("fused", [False, True])
def test_w5_a_scale_of_zero_is_found(fused):
    def run(scaler):
        p = parameter(0.0)
        optimizer = sgd(p, fused=fused)
        scaler._scale.zero_()
        scaler.step(optimizer)
        return p.isnan().all().item(), p.tolist()

    assert run(theirs())[0]
    assert run(ours()) == (False, [1.0, 1.0])


# ---- W7: a bad gradient is noticed after good ones were written ----


def test_w7_all_gradients_are_checked_before_one_is_written():
    def run(scaler):
        good, bad = parameter(8.0), parameter(torch.full((1,), 8.0).expand(2))
        optimizer = sgd(good, bad)
        with pytest.raises((RuntimeError, ValueError)):
            scaler.unscale_(optimizer)
        written = good.grad[0].item()
        bad.grad = torch.full((2,), 8.0)
        scaler.unscale_(optimizer)
        return written, good.grad[0].item(), bad.grad[0].item()

    assert run(theirs()) == (2.0, 0.5, 2.0)
    assert run(ours()) == (8.0, 2.0, 2.0)


# ---- W12: a closure given by position is run with scaled gradients ----


def test_w12_a_closure_by_position_is_refused():
    p = parameter(4.0)
    closure = lambda: p.grad.fill_(4.0).sum()  # noqa: E731
    theirs().step(sgd(p), closure)
    assert p.tolist() == [-3.0, -3.0]
    p = parameter(4.0)
    scaler = ours()
    for optimizer in (sgd(p), sgd(p, fused=True)):
        for arguments, keywords in (((closure,), {}), ((), {"closure": closure})):
            with pytest.raises(RuntimeError, match="Closure use is not currently supported if GradScaler is enabled."):
                scaler.step(optimizer, *arguments, **keywords)
    assert p.tolist() == [1.0, 1.0] and is_picklable(scaler)
    scaler.step(sgd(p), None)
    assert p.tolist() == [0.0, 0.0]


# ---- W16: a fused optimizer without gradients passes step and fails in update ----


def test_w16_a_fused_optimizer_without_gradients_raises_in_step():
    def without_gradients():
        p = parameter(8.0)
        p.grad = None
        return sgd(p, fused=True)

    scaler = theirs()
    scaler.step(without_gradients())
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update."):
        scaler.update()
    scaler = ours()
    for optimizer in (without_gradients(), sgd(torch.nn.Parameter(torch.ones(2)))):
        with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer."):
            scaler.step(optimizer)
    assert is_picklable(scaler)
    p = parameter(8.0)
    scaler.step(sgd(p, fused=True))
    scaler.update()
    assert p.tolist() == [-1.0, -1.0]


# ---- W22: a query or a refused call leaves an entry, with which a scaler does not pickle ----


def refused_unscale(scaler, fused=False):
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients."):
        scaler.unscale_(sgd(parameter(8.0, torch.float16), fused=fused))


TRACES = {
    "a query": lambda scaler: scaler._found_inf_per_device(sgd(parameter(8.0))),
    "a refused unscale_": refused_unscale,
    "a refused unscale_ of a fused optimizer": lambda scaler: refused_unscale(scaler, fused=True),
}


@pytest.mark.parametrize("name", TRACES)
def test_w22_what_changes_nothing_leaves_nothing(name):
    results = []
    for scaler in (theirs(), ours()):
        TRACES[name](scaler)
        results.append(is_picklable(scaler))
    assert results == [False, True]
