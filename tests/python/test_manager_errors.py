"""ampscaler.RobustAMPManager with wrong arguments, and after exceptions: the next call begins a clean window."""

import fractions

import pytest
import torch

import ampscaler
from manager_cases import INF, Product, feed, make, total, weight_of

NAN = float("nan")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_norm": 0.0}, ValueError, "max_norm: expected a positive number, got 0.0"),
        ({"max_norm": -1}, ValueError, "max_norm: expected a positive number, got -1"),
        ({"max_norm": NAN}, ValueError, "max_norm: expected a positive number, got nan"),
        ({"max_norm": "1"}, TypeError, "max_norm: expected a number or None, got str"),
        ({"max_norm": True}, TypeError, "max_norm: expected a number or None, got bool"),
        ({"accumulation_steps": 0}, ValueError, "accumulation_steps: expected at least 1, got 0"),
        ({"accumulation_steps": 2.0}, TypeError, "accumulation_steps: expected an int, got float"),
        ({"accumulation_steps": True}, TypeError, "accumulation_steps: expected an int, got bool"),
        (
            {"accumulation_steps": 2, "accumulation_weights": [1.0]},
            ValueError,
            "accumulation_weights: expected 2 numbers, as many as accumulation_steps, got 1",
        ),
        (
            {"accumulation_steps": 2, "accumulation_weights": [0.5, 0.6]},
            ValueError,
            "accumulation_weights: expected numbers that sum to 1, got a sum of 1.1",
        ),
        (
            {"accumulation_steps": 2, "accumulation_weights": [0.0, 1.0]},
            ValueError,
            "accumulation_weights[0]: expected a positive finite number, got 0.0",
        ),
        (
            {"accumulation_steps": 2, "accumulation_weights": [1.0, NAN]},
            ValueError,
            "accumulation_weights[1]: expected a positive finite number, got nan",
        ),
        (
            {"accumulation_weights": ["1"]},
            TypeError,
            "accumulation_weights[0]: expected a number, got str",
        ),
        (
            {"autocast_dtype": torch.float64},
            ValueError,
            "autocast_dtype: expected torch.float16, torch.bfloat16 or torch.float32, got torch.float64",
        ),
        (
            {"autocast_dtype": "float16"},
            ValueError,
            "autocast_dtype: expected torch.float16, torch.bfloat16 or torch.float32, got 'float16'",
        ),
        ({"device": "meta"}, ValueError, "device: expected a device that holds values, got meta"),
    ],
)
def test_bad_arguments_are_refused_by_name(options, error, text):
    with pytest.raises(error) as caught:
        make(**options)
    assert str(caught.value) == f"RobustAMPManager: {text}"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"min_scale": 0.0}, ValueError, "ScalePolicy: min_scale: expected a value in"),
        ({"max_scale": 2.0**127}, ValueError, "ScalePolicy: max_scale: expected a value in"),
        ({"min_scale": 8.0, "max_scale": 4.0}, ValueError, "ScalePolicy: min_scale: expected at most max_scale = 4"),
        ({"init_scale": INF}, ValueError, "init_scale: expected a positive finite"),
        ({"growth_factor": 1.0}, AssertionError, "The growth factor must be > 1.0."),
        ({"backoff_factor": 1.0}, AssertionError, "The backoff factor must be < 1.0."),
        ({"growth_interval": 0}, ValueError, "growth_interval: expected an integer >= 1, got 0"),
        ({"device": "nowhere"}, RuntimeError, "nowhere"),
    ],
)
def test_what_scaler_and_torch_refuse(options, error, text):
    with pytest.raises(error, match=text):
        make(**({"max_scale": None} | options))


@pytest.mark.parametrize("weights", [(0.25, 0.75), [fractions.Fraction(1, 3), fractions.Fraction(2, 3)], [0.1, 0.9]])
def test_weights_may_be_any_real_numbers(weights):
    manager = make(accumulation_steps=2, accumulation_weights=weights)
    assert manager.accumulation_weights == tuple(float(weight) for weight in weights)


def optimizer_of_nothing():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)


def test_a_model_without_parameters_needs_a_device():
    with pytest.raises(ValueError) as caught:
        ampscaler.RobustAMPManager(torch.nn.Identity(), optimizer_of_nothing())
    assert str(caught.value) == "RobustAMPManager: device: expected one for a model without parameters, got None"


def test_a_model_on_meta_has_no_device_to_train_on():
    with pytest.raises(ValueError) as caught:
        ampscaler.RobustAMPManager(torch.nn.Linear(2, 2, device="meta"), optimizer_of_nothing())
    assert str(caught.value) == "RobustAMPManager: device: expected a device that holds values, got meta"


def test_a_model_on_meta_may_be_filled_later():
    model = torch.nn.Linear(1, 1, device="meta")
    optimizer = optimizer_of_nothing()
    manager = ampscaler.RobustAMPManager(model, optimizer, device="cpu", autocast_dtype=torch.float32)
    model.to_empty(device="cpu").load_state_dict({"weight": torch.ones(1, 1), "bias": torch.zeros(1)})
    optimizer.param_groups[0]["params"] = list(model.parameters())
    assert feed(manager, 3.0) == [3.0]
    assert model.weight.tolist() == [[-2.0]]


WANTED = "RobustAMPManager.training_step: criterion: expected a loss that is a floating tensor with one element"


@pytest.mark.parametrize(
    ("loss", "got"),
    [
        (lambda outputs: outputs, "shape [2] and dtype torch.float32"),
        (lambda outputs: outputs[:0], "shape [0] and dtype torch.float32"),
        (lambda outputs: outputs.sum().long(), "shape [] and dtype torch.int64"),
        (lambda outputs: outputs.sum().item(), "float"),
        (lambda outputs: None, "NoneType"),
    ],
)
def test_a_loss_that_is_no_scalar_is_refused(loss, got):
    manager = make(Product(2))
    with pytest.raises(ValueError) as caught:
        manager.training_step(torch.ones(2), None, lambda outputs, labels: loss(outputs), 0)
    assert str(caught.value) == f"{WANTED}, got {got}"
    assert manager.model.weight.grad is None
    assert feed(manager, 3.0) == [6.0]


def test_a_loss_of_one_element_may_have_dimensions():
    manager = make()
    assert manager.training_step(torch.ones(1), None, lambda outputs, labels: outputs, 0) == 1.0
    assert weight_of(manager) == [0.0]


def test_a_bad_step_idx_is_refused_and_costs_no_window():
    manager = make(accumulation_steps=2)
    feed(manager, 2.0)
    with pytest.raises(TypeError) as caught:
        manager.training_step(torch.ones(1), None, total, 1.0)
    assert str(caught.value) == "RobustAMPManager.training_step: step_idx: expected an int, got float"
    feed(manager, 4.0)
    assert weight_of(manager) == [-2.0]


class FailsInBackward(torch.autograd.Function):
    """Raises in the backward pass."""

    @staticmethod
    def forward(ctx, values):
        return values.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError("backward")


class Failing(Product):
    """A Product that raises where its input is negative."""

    def forward(self, inputs):
        if inputs.item() < 0:
            raise ArithmeticError("model")
        return super().forward(inputs)


def fail_in_criterion(outputs, labels):
    raise ArithmeticError("criterion")


def fail_in_backward(outputs, labels):
    return FailsInBackward.apply(outputs).sum()


def fail_in_optimizer(manager, error=ArithmeticError):
    """Makes the next step of the optimizer raise."""
    step = manager.optimizer.step

    def fail():
        manager.optimizer.step = step
        raise error("optimizer")

    manager.optimizer.step = fail


FAILURES = {
    "model": lambda manager: manager.training_step(torch.tensor([-1.0]), None, total, 9),
    "criterion": lambda manager: manager.training_step(torch.tensor([5.0]), None, fail_in_criterion, 9),
    "backward": lambda manager: manager.training_step(torch.tensor([5.0]), None, fail_in_backward, 9),
    "optimizer": lambda manager: (fail_in_optimizer(manager), feed(manager, 5.0, step=9)),
}


@pytest.mark.parametrize("max_norm", [None, 100.0])
@pytest.mark.parametrize("fused", [None, True])
@pytest.mark.parametrize("where", FAILURES)
def test_after_an_exception_the_next_call_begins_a_clean_window(where, fused, max_norm):
    manager = make(Failing(), fused=fused, accumulation_steps=2, max_norm=max_norm, growth_interval=2)
    feed(manager, 2.0, 4.0)  # one clean step: weight 1 - 3 = -2
    before, last_step = manager.state_dict(), manager.last_step
    feed(manager, 3.0)
    with pytest.raises(ArithmeticError, match=where):
        FAILURES[where](manager)
    assert manager.state_dict() == before
    assert manager.last_step is last_step
    feed(manager, 6.0)
    assert weight_of(manager) == [-2.0]
    assert manager.model.weight.grad.tolist() == [12.0]  # scale 4 * weight 0.5 * 6: the gradients before are gone
    assert manager.state_dict() == before
    feed(manager, 8.0)
    assert weight_of(manager) == [-9.0]  # -2 - (6 + 8) / 2
    assert manager.scaler.get_scale() == 8.0  # the second clean step in a row, since failures are none
    assert manager.skip_count == 0


def test_an_overflow_that_was_seen_before_an_exception_does_not_count():
    manager = make(max_norm=1.0)
    feed(manager, 0.0)
    scaler = manager.scaler

    class FailsAfterTheClip:
        def __getattr__(self, name):
            return getattr(scaler, name)

        def step(self, optimizer):
            raise ArithmeticError

    manager.scaler = FailsAfterTheClip()
    with pytest.raises(ArithmeticError):
        feed(manager, INF)
    manager.scaler = scaler
    feed(manager, 0.5)
    assert (weight_of(manager), manager.scaler.get_scale(), manager.skip_count) == ([0.5], 4.0, 0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_step_is_an_exception_like_others(error):
    manager = make()
    fail_in_optimizer(manager, error)
    with pytest.raises(error):
        feed(manager, 3.0)
    feed(manager, 3.0)
    assert (weight_of(manager), manager.scaler.get_scale()) == ([-2.0], 4.0)


def test_an_optimizer_without_gradients_is_torchs_error():
    manager = ampscaler.RobustAMPManager(Product(), optimizer_of_nothing(), autocast_dtype=torch.float32)
    for _ in range(2):
        with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer."):
            feed(manager, 1.0)


def test_an_exception_in_no_sync_leaves_it():
    class Broken(Failing):
        inside = 0

        def no_sync(self):
            return self

        def __enter__(self):
            self.inside += 1

        def __exit__(self, *error):
            self.inside -= 1

    manager = make(Broken(), accumulation_steps=2)
    with pytest.raises(ArithmeticError):
        feed(manager, -1.0)
    assert manager.model.inside == 0
    feed(manager, 2.0, 4.0)
    assert (weight_of(manager), manager.model.inside) == ([-2.0], 0)


def test_without_cuda_a_manager_for_it_trains_unscaled():
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.warns(UserWarning, match="CUDA is not available"):
        manager = make(device="cuda", max_norm=100.0)
        assert feed(manager, 3.0) == [3.0]
    assert (weight_of(manager), manager.last_step.outcome()) == ([-2.0], ampscaler.StepOutcome.DISABLED)
    assert manager.get_diagnostics() == {
        "current_scale": 1.0,
        "total_skips": 0,
        "scale_changes": 0,
        "recent_scales": [],
    }
    manager.load_state_dict(manager.state_dict())
    assert manager.state_dict()["scaler"] == {}


@pytest.mark.parametrize("optimizer", [None, "sgd", torch.nn.Linear(1, 1)])
def test_an_optimizer_that_is_none_is_refused(optimizer):
    with pytest.raises(TypeError, match="RobustAMPManager: optimizer: expected a torch.optim.Optimizer, got"):
        ampscaler.RobustAMPManager(torch.nn.Linear(1, 1), optimizer)


def test_a_model_that_is_none_is_refused():
    with pytest.raises(TypeError, match=r"RobustAMPManager: model: expected a torch.nn.Module, got SGD"):
        optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=1.0)
        ampscaler.RobustAMPManager(optimizer, optimizer)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -3.0])
def test_a_loaded_scale_that_no_training_reaches_is_refused(scale):
    model = torch.nn.Linear(1, 1)
    manager = ampscaler.RobustAMPManager(model, torch.optim.SGD(model.parameters(), lr=1.0), max_scale=None)
    state = manager.state_dict()
    with pytest.raises(ValueError, match="scale: expected a finite number >= 0, got"):
        manager.load_state_dict({**state, "scaler": {**state["scaler"], "scale": scale}})
    assert manager.state_dict() == state
