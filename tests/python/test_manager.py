"""ampscaler.RobustAMPManager: steps, skips, limits of the scale, accumulation, batches; numbers derived by hand."""

import collections
import contextlib
import math

import pytest
import torch

import ampscaler
from ampscaler import StepOutcome
from manager_cases import INF, LARGE, Product, feed, make, total, weight_of

NAN = float("nan")
FUSED = [None, True]


@pytest.mark.parametrize("fused", FUSED)
def test_a_step_returns_the_loss_and_applies_the_gradient(fused):
    manager = make(fused=fused)
    assert feed(manager, 3.0) == [3.0]  # 3 * weight 1
    assert weight_of(manager) == [-2.0]  # 1 - lr 1 * gradient 3
    assert manager.last_step.outcome() is StepOutcome.APPLIED
    assert feed(manager, 1.0) == [-2.0]
    assert weight_of(manager) == [-3.0]  # gradients were cleared in between
    assert manager.scale_history == []


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_a_nonfinite_loss_is_returned_and_recorded_and_the_step_skipped(fused, value):
    manager = make(fused=fused)
    (loss,) = feed(manager, value, step=7)
    assert loss == value or (math.isnan(loss) and math.isnan(value))
    assert weight_of(manager) == [1.0]
    assert manager.skip_count == 1
    assert manager.last_step.outcome() is StepOutcome.SKIPPED_NONFINITE
    change = {"step": 7, "pre_scale": 4.0, "post_scale": 2.0, "loss": loss}
    assert repr(manager.scale_history) == repr([change])  # as text: NaN differs from itself
    assert repr(list(manager.nonfinite_losses)) == repr([{"step": 7, "loss": loss}])


@pytest.mark.parametrize("fused", FUSED)
def test_a_step_is_skipped_though_its_loss_is_finite(fused):
    """Only the scaled gradient overflows: the sign that a look at the loss misses."""
    manager = make(fused=fused)
    assert feed(manager, LARGE) == [torch.tensor(LARGE).item()]
    assert weight_of(manager) == [1.0]
    assert (manager.skip_count, len(manager.nonfinite_losses)) == (1, 0)
    assert manager.scaler.get_scale() == 2.0


def test_a_nonfinite_loss_does_not_skip_a_finite_gradient():
    manager = make()
    loss = manager.training_step(torch.tensor([3.0]), None, lambda outputs, labels: outputs.sum() + INF, 0)
    assert loss == INF
    assert weight_of(manager) == [-2.0]
    assert (manager.skip_count, list(manager.nonfinite_losses)) == (0, [{"step": 0, "loss": INF}])


@pytest.mark.parametrize("fused", FUSED)
def test_skips_are_counted_at_the_floor_where_the_scale_stays(fused):
    manager = make(fused=fused, min_scale=2.0)
    feed(manager, *[INF] * 4)
    assert manager.skip_count == 4
    assert manager.scale_history == [{"step": 0, "pre_scale": 4.0, "post_scale": 2.0, "loss": INF}]


@pytest.mark.parametrize("fused", FUSED)
def test_skips_are_counted_at_a_cap_that_is_the_floor_too(fused):
    manager = make(fused=fused, min_scale=4.0, max_scale=4.0, growth_interval=1)
    feed(manager, 1.0, INF, 1.0, INF, LARGE)
    assert manager.skip_count == 3
    assert manager.scale_history == []


def test_without_a_floor_the_scale_sinks_to_zero_and_with_one_training_goes_on():
    sunk, held = make(backoff_factor=2.0**-80), make(backoff_factor=2.0**-80, min_scale=2.0**-10)
    for manager in (sunk, held):
        feed(manager, INF, INF)  # 4 * 2^-160 is 0 in float32
        assert (weight_of(manager), manager.skip_count) == ([1.0], 2)
        feed(manager, 3.0, 3.0)
    assert (held.scaler.get_scale(), weight_of(held), held.skip_count) == (2.0**-10, [-5.0], 2)
    # A scale of 0 cannot be divided by: each step is skipped, where torch's scaler writes NaN.
    assert (sunk.scaler.get_scale(), weight_of(sunk), sunk.skip_count) == (0.0, [1.0], 4)


def scale_address(scaler):
    """Where the scale is: the product of scale() keeps its second factor for the backward pass."""
    return scaler.scale(torch.ones((), requires_grad=True)).grad_fn._saved_other.data_ptr()


def test_the_cap_holds_at_every_moment_in_the_same_tensor():
    manager = make(growth_interval=1, max_scale=16.0)
    address, scales = scale_address(manager.scaler), []
    for step in range(5):
        feed(manager, 0.0, step=step)
        scales.append(manager.scaler.get_scale())
        assert scale_address(manager.scaler) == address
    assert scales == [8.0, 16.0, 16.0, 16.0, 16.0]
    assert [(c["pre_scale"], c["post_scale"]) for c in manager.scale_history] == [(4.0, 8.0), (8.0, 16.0)]
    feed(manager, INF)
    assert manager.scaler.get_scale() == 8.0
    assert scale_address(manager.scaler) == address


def test_a_cap_between_two_powers_is_reached_exactly():
    manager = make(growth_interval=1, max_scale=10.0)
    feed(manager, 0.0, 0.0, 0.0)
    assert [change["post_scale"] for change in manager.scale_history] == [8.0, 10.0]


@pytest.mark.parametrize(("given", "expected"), [(1.0, 2.0), (2.0**30, 16.0), (4.0, 4.0)])
def test_the_first_scale_is_clamped(given, expected):
    manager = make(init_scale=given, min_scale=2.0, max_scale=16.0)
    assert manager.scaler.get_scale() == expected


def test_defaults():
    model = Product()
    manager = ampscaler.RobustAMPManager(model, torch.optim.SGD(model.parameters(), lr=1.0))
    scaler = manager.scaler
    numbers = (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval())
    assert (scaler.get_scale(), *numbers) == (2.0**16, 2.0, 0.5, 2000)
    assert scaler.policy == ampscaler.ScalePolicy(max_scale=2.0**24)
    assert (manager.device, manager.autocast_dtype) == (torch.device("cpu"), torch.float16)
    assert (manager.max_norm, manager.accumulation_steps, manager.accumulation_weights) == (None, 1, (1.0,))
    assert (manager.skip_count, manager.scale_history, list(manager.nonfinite_losses)) == (0, [], [])
    assert manager.last_step is None


def test_the_diagnostics():
    manager = make(init_scale=1.0, growth_interval=1)
    fresh = manager.get_diagnostics()
    assert list(fresh.items()) == [
        ("current_scale", 1.0),
        ("total_skips", 0),
        ("scale_changes", 0),
        ("recent_scales", []),
    ]
    feed(manager, *[0.0] * 12, INF)  # 2, 4, ... 4096, and back to 2048
    assert manager.get_diagnostics() == {
        "current_scale": 2048.0,
        "total_skips": 1,
        "scale_changes": 13,
        "recent_scales": [16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 2048.0],
    }


def test_the_record_of_nonfinite_losses_is_bounded():
    manager = make(min_scale=1.0)
    feed(manager, *[INF] * 1003)
    assert len(manager.nonfinite_losses) == 1000
    assert manager.nonfinite_losses[0] == {"step": 3, "loss": INF}
    assert manager.skip_count == 1003


def test_clipping_is_on_true_gradients():
    manager = make(Product(2), max_norm=2.5)
    manager.training_step(torch.tensor([3.0, 4.0]), None, total, 0)
    torch.testing.assert_close(manager.model.weight.detach(), torch.tensor([-0.5, -1.0]))  # norm 5: 1 - [3, 4] / 2
    feed(manager, INF)
    torch.testing.assert_close(manager.model.weight.detach(), torch.tensor([-0.5, -1.0]))
    assert manager.skip_count == 1  # though clipping turns a gradient of inf into 0 and NaN


def test_clipping_knows_only_the_parameters_of_the_optimizer():
    model = torch.nn.Sequential(Product(), Product())
    manager = ampscaler.RobustAMPManager(
        model, torch.optim.SGD(model[1].parameters(), lr=1.0), 4.0, autocast_dtype=torch.float32, max_norm=4.0
    )
    feed(manager, 3.0)  # the gradient of model[0] is still 12
    assert model[1].weight.tolist() == [-2.0]


Point = collections.namedtuple("Point", ["x", "y"])


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ({"x": 1, "y": 2}, ((), {"x": 1, "y": 2})),
        (collections.UserDict(y=2), ((), {"y": 2})),
        ((1, 2), ((1, 2), {})),
        (Point(1, 2), ((1, 2), {})),
        ([1, 2], (([1, 2],), {})),
        (None, ((None,), {})),
    ],
)
def test_batches_reach_the_model(batch, expected):
    class Recorder(Product):
        def forward(self, *arguments, **named):
            self.called_with = (arguments, named)
            return self.weight

    manager = make(Recorder())
    labels = object()

    def criterion(outputs, given):
        assert given is labels
        return outputs.sum()

    assert manager.training_step(batch, labels, criterion, 0) == 1.0
    assert manager.model.called_with == expected


class BackwardSees(torch.autograd.Function):
    """Notes whether autocast is on in the backward pass."""

    seen: list

    @staticmethod
    def forward(ctx, values):
        return values.clone()

    @staticmethod
    def backward(ctx, gradient):
        BackwardSees.seen.append(torch.is_autocast_enabled("cpu"))
        return gradient


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_forward_and_criterion_run_under_autocast_and_backward_does_not(dtype):
    BackwardSees.seen, dtypes = [], []

    def criterion(outputs, labels):
        dtypes.extend([outputs.dtype, (outputs @ labels).dtype])
        return BackwardSees.apply(outputs.float()).sum()

    manager = make(torch.nn.Linear(2, 2), autocast_dtype=dtype)
    manager.training_step(torch.ones(1, 2), torch.ones(2, 1), criterion, 0)
    assert dtypes == [dtype, dtype]
    assert BackwardSees.seen == [False]
    assert manager.skip_count == 0


def test_float32_turns_an_outer_autocast_off():
    manager = make(torch.nn.Linear(2, 2))
    dtypes = []
    with torch.autocast("cpu", torch.bfloat16):
        manager.training_step(
            torch.ones(1, 2), dtypes, lambda outputs, seen: seen.append(outputs.dtype) or outputs.sum(), 0
        )
    assert dtypes == [torch.float32]


class NoSync(Product):
    """Keeps a diary of no_sync, forward and backward passes, as DistributedDataParallel has the first."""

    def __init__(self):
        super().__init__()
        self.diary = []
        self.weight.register_hook(lambda gradient: self.diary.append("backward"))

    def forward(self, inputs):
        self.diary.append("forward")
        return super().forward(inputs)

    @contextlib.contextmanager
    def no_sync(self):
        self.diary.append("enter")
        try:
            yield
        finally:
            self.diary.append("leave")


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_all_but_the_last_micro_batch_are_under_no_sync(steps):
    manager = make(NoSync(), accumulation_steps=steps)
    feed(manager, *[0.0] * (2 * steps))
    window = ["enter", "forward", "backward", "leave"] * (steps - 1) + ["forward", "backward"]
    assert manager.model.diary == window * 2


def test_a_model_without_parameters_trains_on_a_given_device():
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    manager = ampscaler.RobustAMPManager(
        torch.nn.Identity(), optimizer, 4.0, device="cpu", autocast_dtype=torch.float32
    )
    assert manager.training_step(torch.tensor([3.0]), weight, lambda x, w: (x * w).sum(), 0) == 3.0
    assert weight.tolist() == [-2.0]
