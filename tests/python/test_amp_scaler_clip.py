"""AmpScaler's clips with Python optimizers of every kind, against the same arithmetic in float64."""

import math

import pytest
import torch

from amp_scaler_clip_cases import (
    FUSED,
    INF,
    ORDINARY,
    Delegating,
    KeywordVariant,
    OwnStep,
    exact_clip,
    label,
    parameter_with,
    reads,
    ready,
    six_eight,
)
from ampscaler import AmpScaler

ORDERS = {
    "clip": ("clip",),
    "clip, then unscale_": ("clip", "unscale_"),
    "unscale_, then clip": ("unscale_", "clip"),
}
MAX_NORM = 12.0  # binds in about half of the iterations
NONFINITE = 4  # an iteration


def make_parameters():
    generator = torch.Generator().manual_seed(2)
    shapes = (7,), (3, 5), (1,), (40,)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def make_groups(parameters):
    return [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.03, "weight_decay": 0.02}]


def true_gradients(parameters):
    """Of ten iterations; the second parameter has none in every third, and one iteration overflows."""
    generator = torch.Generator().manual_seed(7)
    for iteration in range(10):
        factor = 0.5 + iteration % 3
        gradients = [torch.randn(p.shape, generator=generator) * factor for p in parameters]
        if iteration % 3 == 2:
            gradients[1] = None
        if iteration == NONFINITE:
            gradients[0][3] = INF
        yield gradients


def train_exactly(make):
    """Plain steps of the same optimizer on gradients that were clipped in float64."""
    parameters = make_parameters()
    optimizer = make(make_groups(parameters))
    norms = []
    for gradients in true_gradients(parameters):
        present = [gradient for gradient in gradients if gradient is not None]
        norm, clipped = exact_clip(present, MAX_NORM)
        norms.append(norm)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else clipped.pop(0).float()
        if math.isfinite(norm):
            optimizer.step()
    return norms, parameters


def train(make, order):
    parameters = make_parameters()
    optimizer = make(make_groups(parameters))
    scaler = ready(3000.0, growth_interval=2)
    norms, waits = [], []
    for gradients in true_gradients(parameters):
        scale = scaler.get_scale()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient * scale
        before = reads()
        for call in order:
            if call == "clip":
                norms.append(scaler.clip_grad_norm_(optimizer, MAX_NORM))
            else:
                scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        waits.append(reads() - before)
    return [norm.item() for norm in norms], parameters, waits


def compare(make, order):
    exact_norms, exact = train_exactly(make)
    norms, parameters, waits = train(make, order)
    assert norms == pytest.approx(exact_norms, rel=1e-6)
    assert 3 <= sum(norm > MAX_NORM for norm in exact_norms if math.isfinite(norm)) <= 7
    for ours, theirs in zip(parameters, exact, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    return waits


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("case", FUSED, ids=label)
def test_torchs_fused_optimizers(case, order):
    name, options = case
    supported = getattr(getattr(torch.optim, name)(make_parameters(), fused=True), "_step_supports_amp_scaling", False)
    if not supported and order == ORDERS["clip, then unscale_"]:
        pytest.skip(f"in torch {torch.__version__} fused {name} is an ordinary optimizer, whose clip is its unscale_")
    waits = compare(lambda groups: getattr(torch.optim, name)(groups, lr=0.1, fused=True, **options), order)
    if not supported:
        assert set(waits) == {1}
    elif "momentum" in options:
        assert waits == [1] + [0] * 9  # where it creates momentum buffers, only
    else:
        assert set(waits) == {0}


@pytest.mark.parametrize("order", [("clip",), ("unscale_", "clip")], ids=["clip", "unscale_, then clip"])
@pytest.mark.parametrize("case", ORDINARY, ids=label)
def test_ordinary_optimizers(case, order):
    name, options = case
    waits = compare(lambda groups: getattr(torch.optim, name)(groups, lr=0.1, **options), order)
    assert set(waits) == {1}


def test_a_learning_rate_that_is_a_tensor():
    compare(lambda groups: torch.optim.Adam(groups, lr=torch.tensor(0.1), fused=True), ("clip",))


@pytest.mark.parametrize("fused", [True, False])
def test_dtypes_may_be_mixed_in_one_optimizer(fused):
    gradients = [[24.0, 0.0], [0.0, 32.0]]
    parameters = [parameter_with(g, d) for g, d in zip(gradients, (torch.bfloat16, torch.float64), strict=True)]
    groups = [{"params": [parameter]} for parameter in parameters]
    scaler, optimizer = ready(), torch.optim.SGD(groups, lr=1.0, fused=fused)
    assert scaler.clip_grad_norm_(optimizer, 5.0).item() == 10.0
    scaler.step(optimizer)
    assert [parameter.tolist() for parameter in parameters] == [[-2.0, 1.0], [1.0, -3.0]]


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_gradients_of_fused_optimizers_are_not_written_before_the_step(name):
    scaler, optimizer, parameter = six_eight(getattr(torch.optim, name), fused=True)
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        pytest.skip(f"in torch {torch.__version__} fused {name} does not take the scale itself")
    version = parameter.grad._version
    assert scaler.clip_grad_norm_(optimizer, 5.0).item() == 10.0
    assert (parameter.grad.tolist(), parameter.grad._version) == ([24.0, 32.0], version)
    assert scaler.grads_are_scaled(optimizer)
    scaler.step(optimizer)
    assert parameter.grad.tolist() == [3.0, 4.0]  # written back by the optimizer
    assert not hasattr(optimizer, "grad_scale")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_users_factor_counts_whenever_it_is_set(when):
    scaler, optimizer, parameter = six_eight(fused=True)
    if when == "before":
        optimizer.grad_scale = torch.tensor(2.0)
    norm = scaler.clip_grad_norm_(optimizer, 2.5 if when == "before" else 5.0)
    optimizer.grad_scale = torch.tensor(2.0)
    scaler.step(optimizer)
    assert norm.item() == (5.0 if when == "before" else 10.0)
    assert parameter.tolist() == [-0.5, -1.0]
    assert optimizer.grad_scale.item() == 2.0


def test_a_scheduler_does_not_keep_the_clip_from_being_folded():
    scaler, optimizer, parameter = six_eight(fused=True)
    torch.optim.lr_scheduler.StepLR(optimizer, 10)
    scaler.clip_grad_norm_(optimizer, 5.0)
    assert parameter.grad.tolist() == [24.0, 32.0]
    scaler.step(optimizer)
    assert parameter.tolist() == [-2.0, -3.0]


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("optimizer_class", [OwnStep, Delegating])
def test_where_the_factor_may_get_lost_scaled_gradients_are_clipped(optimizer_class, order):
    scaler, optimizer, parameter = six_eight(optimizer_class)
    for call in order:
        if call == "clip":
            assert scaler.clip_grad_norm_(optimizer, 5.0).item() == 10.0
        else:
            scaler.unscale_(optimizer)
    assert parameter.grad.tolist() == ([12.0, 16.0] if order == ("clip",) else [3.0, 4.0])
    scaler.step(optimizer)
    assert parameter.tolist() == [-2.0, -3.0]


def test_the_keyword_variant_gets_unscaled_and_clipped_gradients():
    scaler, optimizer, parameter = six_eight(KeywordVariant)
    scaler.clip_grad_norm_(optimizer, 5.0)
    assert parameter.grad.tolist() == [3.0, 4.0]
    scaler.step(optimizer)
    assert parameter.tolist() == [-2.0, -3.0]


def test_a_step_that_someone_replaced_is_not_trusted_with_the_coefficient():
    scaler, optimizer, parameter = six_eight(fused=True)
    original = optimizer.step
    optimizer.step = lambda: original()
    scaler.clip_grad_norm_(optimizer, 5.0)
    assert parameter.grad.tolist() == [12.0, 16.0]
    scaler.step(optimizer)
    assert parameter.tolist() == [-2.0, -3.0]


@pytest.mark.parametrize("container", [list, tuple])
def test_one_norm_over_optimizers_of_every_kind(container):
    scaler = ready()
    parameters = [parameter_with([gradient * 4.0]) for gradient in (1.0, 5.0, 7.0, 5.0)]  # norm 10
    kinds = [torch.optim.SGD, lambda p, lr: torch.optim.SGD(p, lr, fused=True), OwnStep, Delegating]
    optimizers = container(kind([p], lr=1.0) for kind, p in zip(kinds, parameters, strict=True))
    assert scaler.grad_norm(optimizers).item() == 10.0
    assert scaler.clip_grad_norm_(optimizers, 5.0).item() == 10.0
    assert scaler.grad_norm(optimizers).item() == 5.0
    for optimizer in optimizers:
        scaler.step(optimizer)
    assert [parameter.item() for parameter in parameters] == [0.5, -1.5, -2.5, -1.5]


@pytest.mark.parametrize("bad", [INF, -INF, float("nan")])
@pytest.mark.parametrize("fused", [True, False])
def test_nonfinite_gradients_are_skipped_without_an_exception(fused, bad):
    scaler, optimizer, parameter = six_eight(fused=fused)
    parameter.grad[1] = bad
    norm = scaler.clip_grad_norm_(optimizer, 1.0).item()
    assert math.isnan(norm) if math.isnan(bad) else norm == INF
    assert parameter.grad[0].item() == (24.0 if fused else 6.0)  # unclipped
    assert not scaler.is_finite(optimizer)
    assert not scaler.step(optimizer).applied()
    scaler.update()
    assert (parameter.tolist(), scaler.get_scale()) == ([1.0, 1.0], 2.0)


def test_a_limit_so_small_that_no_factor_can_express_it_is_a_skip():
    """64 gradients of 1e38 with the limit 0.5: the factor would leave the range of float32."""
    parameter = parameter_with([1e38] * 64)
    scaler, optimizer = ready(), torch.optim.SGD([parameter], lr=1.0, fused=True)
    scaler.clip_grad_norm_(optimizer, 0.5)
    assert not scaler.step(optimizer).applied()
    assert parameter.tolist() == [1.0] * 64


def test_clip_grad_value():
    for options in ({}, {"fused": True}):
        scaler, optimizer, parameter = six_eight(**options)
        scaler.clip_grad_value_(optimizer, 7.0)
        assert parameter.grad.tolist() == [6.0, 7.0]
        scaler.step(optimizer)
        assert parameter.tolist() == [-5.0, -6.0]


def test_the_step_of_a_fused_optimizer_only_reads_what_it_checks():
    """The optimizer's own step is taken away, so that whatever is written is ours."""
    scaler, optimizer, parameter = six_eight(fused=True)
    optimizer.step = lambda: None
    version = parameter.grad._version
    scaler.step(optimizer)
    assert (parameter.grad.tolist(), parameter.grad._version) == ([24.0, 32.0], version)


@pytest.mark.parametrize("clip", [False, True])
def test_after_a_fused_step_the_stage_depends_on_what_it_did(clip):
    for gradient, scaled in ((24.0, False), (INF, True)):
        scaler, optimizer, parameter = six_eight(fused=True)
        parameter.grad[0] = gradient
        if clip:
            scaler.clip_grad_norm_(optimizer, 5.0)
        scaler.step(optimizer)
        before = reads()
        norm = scaler.grad_norm(optimizer)
        assert reads() == before
        assert scaler.grads_are_scaled(optimizer) is scaled
        assert reads() == before + 1
        assert norm.item() == (INF if scaled else 5.0 if clip else 10.0)
        scaler.update()
        assert scaler.grads_are_scaled(optimizer)


def test_grads_are_scaled_after_other_calls():
    scaler, optimizer, _ = six_eight()
    before = reads()
    assert not AmpScaler("cpu").grads_are_scaled(optimizer)
    assert scaler.grads_are_scaled(optimizer)
    scaler.unscale_(optimizer)
    assert not scaler.grads_are_scaled(optimizer)
    assert reads() == before
    scaler.step(optimizer)
    assert not scaler.grads_are_scaled(optimizer)


def test_no_wait_in_clips_and_queries():
    scaler, optimizer, _ = six_eight()
    before = reads()
    scaler.set_grad_divisor(torch.tensor(3))
    answer = scaler.is_finite(optimizer)
    scaler.grad_norm(optimizer)
    scaler.clip_grad_norm_(optimizer, torch.tensor(1.0))
    scaler.clip_grad_value_(optimizer, 1.0)
    assert reads() == before
    assert (answer.dtype, answer.shape) == (torch.bool, ())
