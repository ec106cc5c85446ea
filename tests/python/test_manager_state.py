"""ampscaler.RobustAMPManager saved and loaded: a continued run equals the uninterrupted one; bad states are refused."""

import io

import pytest
import torch

import ampscaler
from manager_cases import INF, feed, make, weight_of

STEPS = 20
OVERFLOWS = (3, 9, 14)


def make_run(seed, **options):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    options = {"growth_interval": 2, "max_norm": 0.5, "accumulation_steps": 2} | options
    return ampscaler.RobustAMPManager(model, optimizer, 2.0**10, **options)


def train(manager, first, last):
    generator = torch.Generator().manual_seed(7)
    batches = [(torch.randn(3, 4, generator=generator), torch.randn(3, 2, generator=generator)) for _ in range(STEPS)]
    return [
        manager.training_step(inputs * (INF if step in OVERFLOWS else 1.0), labels, torch.nn.functional.mse_loss, step)
        for step, (inputs, labels) in enumerate(batches)
        if first <= step < last
    ]


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def everything(manager):
    tensors = [value.numpy().tobytes() for value in manager.model.state_dict().values()]
    records = manager.scale_history, list(manager.nonfinite_losses)  # as text below: NaN differs from itself
    return manager.scaler.state_dict(), manager.skip_count, repr(records), tensors


@pytest.mark.parametrize("cut", [0, 4, 6, 12])
def test_a_run_that_is_saved_and_continued_is_the_uninterrupted_one(cut):
    whole = make_run(0)
    losses = train(whole, 0, STEPS)
    first = make_run(0)
    begin = train(first, 0, cut)
    parts = first, first.model, first.optimizer
    saved = through_a_file([part.state_dict() for part in parts])
    second = make_run(99, growth_interval=50)  # other weights, and numbers that the state replaces
    for part, state in zip((second, second.model, second.optimizer), saved, strict=True):
        part.load_state_dict(state)
    assert repr(begin + train(second, cut, STEPS)) == repr(losses)
    assert everything(second) == everything(whole)
    assert whole.skip_count == len(OVERFLOWS)
    assert len(whole.scale_history) > len(OVERFLOWS)  # it grew as well


def test_the_state_holds_plain_values():
    manager = make(growth_interval=1)
    feed(manager, 0.0, INF)
    assert manager.state_dict() == {
        "scaler": manager.scaler.state_dict(),
        "skip_count": 1,
        "scale_history": [
            {"step": 0, "pre_scale": 4.0, "post_scale": 8.0, "loss": 0.0},
            {"step": 1, "pre_scale": 8.0, "post_scale": 4.0, "loss": INF},
        ],
        "nonfinite_losses": [{"step": 1, "loss": INF}],
    }


def test_a_state_is_a_copy_when_saved_and_when_loaded():
    manager, other = make(growth_interval=1), make()
    feed(manager, INF)
    state = manager.state_dict()
    other.load_state_dict(state)
    before = repr(state)
    feed(manager, INF, 0.0)
    feed(other, INF)
    manager.scale_history[0]["loss"] = other.scale_history[0]["loss"] = 0.0
    assert repr(state) == before


def test_an_open_window_is_not_saved_and_begins_anew():
    manager, other = (make(accumulation_steps=2) for _ in range(2))
    feed(manager, 100.0)
    feed(other, 100.0)
    other.load_state_dict(manager.state_dict())
    feed(other, 2.0)
    assert weight_of(other) == [1.0]  # the first of a window
    feed(other, 4.0)
    assert weight_of(other) == [-2.0]  # 1 - (2 + 4) / 2
    assert other.last_step.applied()


def test_loading_forgets_the_last_step():
    manager = make()
    feed(manager, 1.0)
    manager.load_state_dict(manager.state_dict())
    assert manager.last_step is None


@pytest.mark.parametrize(("saved", "expected"), [(1.0, 2.0), (64.0, 16.0), (8.0, 8.0)])
def test_a_loaded_scale_is_clamped(saved, expected):
    manager = make(min_scale=2.0, max_scale=16.0)
    manager.load_state_dict(make(init_scale=saved).state_dict())
    assert manager.scaler.get_scale() == expected
    feed(manager, 3.0)
    assert weight_of(manager) == [-2.0]


def test_only_the_last_thousand_nonfinite_losses_are_loaded():
    manager = make()
    records = [{"step": step, "loss": INF} for step in range(1001)]
    manager.load_state_dict(manager.state_dict() | {"nonfinite_losses": records})
    assert list(manager.nonfinite_losses) == records[1:]


CHANGE = {"step": 0, "pre_scale": 4.0, "post_scale": 8.0, "loss": 1.0}
CHANGE_KEYS = "['step', 'pre_scale', 'post_scale', 'loss']"


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"scaler": 1}, TypeError, "scaler: expected a dict, got int"),
        ({"skip_count": 1.0}, TypeError, "skip_count: expected an int, got float"),
        ({"skip_count": True}, TypeError, "skip_count: expected an int, got bool"),
        ({"skip_count": -1}, ValueError, "skip_count: expected at least 0, got -1"),
        ({"scale_history": None}, TypeError, "scale_history: expected a list, got NoneType"),
        ({"scale_history": [CHANGE, 3]}, TypeError, "scale_history[1]: expected a dict, got int"),
        (
            {"scale_history": [{"step": 0, "loss": 1.0}]},
            ValueError,
            f"scale_history[0]: expected the keys {CHANGE_KEYS}, got ['step', 'loss']",
        ),
        (
            {"scale_history": [CHANGE | {"step": 0.0}]},
            TypeError,
            "scale_history[0]: step: expected an int, got float",
        ),
        (
            {"scale_history": [CHANGE | {"post_scale": "8"}]},
            TypeError,
            "scale_history[0]: post_scale: expected a number, got str",
        ),
        ({"nonfinite_losses": {}}, TypeError, "nonfinite_losses: expected a list, got dict"),
        (
            {"nonfinite_losses": [CHANGE]},
            ValueError,
            f"nonfinite_losses[0]: expected the keys ['step', 'loss'], got {CHANGE_KEYS}",
        ),
    ],
)
def test_a_malformed_state_is_refused_and_changes_nothing(changes, error, text):
    manager = make(growth_interval=1)
    feed(manager, 0.0, INF)
    good = make().state_dict()
    before, last_step = everything(manager), manager.last_step
    with pytest.raises(error) as caught:
        manager.load_state_dict(good | changes)
    assert str(caught.value) == f"RobustAMPManager.load_state_dict: {text}"
    assert everything(manager) == before
    assert manager.last_step is last_step


def test_what_is_no_state_is_refused():
    manager = make()
    with pytest.raises(TypeError) as caught:
        manager.load_state_dict([1])
    assert str(caught.value) == "RobustAMPManager.load_state_dict: state_dict: expected a mapping, got list"
    state = manager.state_dict()
    for key in state:
        rest = {name: value for name, value in state.items() if name != key}
        with pytest.raises(KeyError) as caught:
            manager.load_state_dict(rest)
        expected = f"state_dict: expected the key {key!r}, got {list(rest)}"
        assert caught.value.args == (f"RobustAMPManager.load_state_dict: {expected}",)


@pytest.mark.parametrize(
    ("scaler", "error", "text"),
    [
        ({}, RuntimeError, "The source state dict is empty"),
        ({"scale": 4.0}, KeyError, "growth_factor"),
        ({"scale": "4"}, TypeError, "scale"),
        ({"scale": float("nan")}, ValueError, "scale: expected a finite number >= 0, got nan"),
    ],
)
def test_what_the_scaler_refuses_changes_nothing(scaler, error, text):
    manager = make()
    feed(manager, INF)
    good, before = make().state_dict(), everything(manager)
    partial = {} if len(scaler) == 0 or error is KeyError else good["scaler"]
    with pytest.raises(error, match=text):
        manager.load_state_dict(good | {"scaler": partial | scaler, "skip_count": 5})
    assert everything(manager) == before


def test_other_keys_are_ignored():
    manager = make()
    manager.load_state_dict(manager.state_dict() | {"epoch": 3})
    assert "epoch" not in manager.state_dict()
