"""ampscaler.AmpScaler misused: bad numbers and states, wrong order, threads, pickling. Nothing changes or crashes."""

import copy
import itertools
import pickle
import threading
import time
import warnings

import pytest
import torch

from amp_scaler_cases import INF, make
from ampscaler import AmpScaler


def test_a_raising_fused_optimizer_leaves_no_attributes():
    scaler, optimizer, parameter = make(optimizer=torch.optim.SGD, fused=True)
    original, failures = optimizer.step, [RuntimeError("once")]

    def step():
        if failures:
            raise failures.pop()
        return original()

    optimizer.step = step
    with pytest.raises(RuntimeError, match="once"):
        scaler.step(optimizer)
    assert not hasattr(optimizer, "grad_scale")
    scaler.step(optimizer)
    assert parameter.tolist() == [-1.0, -1.0]


def test_an_int_is_no_new_scale_as_in_torch():
    scaler, theirs = make()[0], torch.amp.GradScaler("cpu")
    theirs.scale(torch.ones(()))
    for new_scale in (3, "4", [1.0]):
        messages = []
        for each in (scaler, theirs):
            with pytest.raises(AttributeError) as caught:
                each.update(new_scale)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"init_scale": 0.0},
            ValueError,
            "init_scale: expected a positive finite float32 value, got 0",
        ),
        ({"init_scale": INF}, ValueError, "init_scale: expected a positive finite float32"),
        ({"growth_factor": 1.0}, AssertionError, "The growth factor must be > 1.0."),
        ({"growth_factor": float("nan")}, ValueError, "growth_factor: expected a finite value"),
        ({"backoff_factor": 1.0}, AssertionError, "The backoff factor must be < 1.0."),
        ({"backoff_factor": 0.0}, ValueError, "backoff_factor: expected a value in"),
        ({"growth_interval": 0}, ValueError, "growth_interval: expected an integer >= 1, got 0"),
        ({"growth_interval": 2.5}, TypeError, "growth_interval"),
        ({"init_scale": "1"}, TypeError, "init_scale"),
    ],
)
def test_bad_options_are_refused_by_name(options, error, text):
    with pytest.raises(error, match=text):
        AmpScaler("cpu", **options)


def test_bad_states_are_refused_whole():
    scaler = make()[0]
    good = scaler.state_dict() | {"scale": 32.0}
    for key in good:
        with pytest.raises(KeyError, match=key):
            scaler.load_state_dict({k: v for k, v in good.items() if k != key})
        for wrong in ([1.0], "1", None, True, torch.ones(())):
            with pytest.raises(TypeError, match=key):
                scaler.load_state_dict(good | {key: wrong})
    for wrong, error in ((good | {"scale": 2**80 * 2**60}, ValueError), (good | {"growth_interval": 2**80}, TypeError)):
        with pytest.raises(error, match="AmpScaler: scale|growth_interval"):
            scaler.load_state_dict(wrong)
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        scaler.load_state_dict({})
    assert scaler.get_scale() == 4.0
    scaler.load_state_dict(good | {"extra": object(), "\ud800": 1.0, 5: 1.0})
    assert scaler.get_scale() == 32.0


def test_wrong_order_raises_torchs_errors():
    scaler, optimizer, _ = make()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called on this optimizer"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(optimizer, closure=None)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called"):
        scaler.step(optimizer)
    with pytest.raises(AssertionError, match="expected param to be torch.Tensor, got str"):
        scaler.unscale_(type("Odd", (), {"param_groups": [{"params": ["x"]}]})())


def test_cuda_without_a_device_warns_and_disables():
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scaler = AmpScaler()
    assert not scaler.is_enabled()
    assert "is enabled, but CUDA is not available.  Disabling." in str(caught[0].message)


def longest_pause(call):
    """Seconds that `call` took, and the longest time that another Python thread could not run in it."""
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.perf_counter()
    call()
    end = time.perf_counter()
    stop.set()
    thread.join()
    inside = [begin, *(tick for tick in ticks if begin < tick < end), end]
    return end - begin, max(later - earlier for earlier, later in itertools.pairwise(inside))


def test_the_gil_is_released_around_kernels():
    parameter = torch.nn.Parameter(torch.zeros(50_000_000))
    parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.SGD([parameter], lr=1.0)

    def unscale():
        scaler = AmpScaler("cpu", init_scale=4.0)
        scaler.scale(torch.ones(()))
        return longest_pause(lambda: scaler.unscale_(optimizer))

    # On a busy machine a single pause means little; a held GIL pauses for the whole call every time.
    assert any(pause < 0.5 * duration for duration, pause in (unscale() for _ in range(5)))


def test_a_second_thread_is_refused():
    scaler, optimizer, _ = make()
    messages = []

    def intrude():
        try:
            scaler.update(2.0)
        except RuntimeError as error:
            messages.append(str(error))

    def step():
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()

    optimizer.step = step
    scaler.step(optimizer)
    assert messages == ["AmpScaler is used by two threads at once; it is not thread-safe."]


def test_numbers_that_torch_has_no_use_for_raise_attribute_errors():
    numpy = pytest.importorskip("numpy")
    with pytest.raises(AttributeError):
        make()[0].update(numpy.float32(2))


def test_errors_of_an_attribute_lookup_pass():
    class Odd(torch.optim.SGD):
        @property
        def _step_supports_amp_scaling(self):
            raise KeyboardInterrupt

    scaler, optimizer, parameter = make(optimizer=Odd)
    with pytest.raises(KeyboardInterrupt):
        scaler.step(optimizer)
    assert parameter.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("protocol", range(6))
def test_pickling_is_refused(protocol):
    scaler, optimizer, _ = make()
    for value in (scaler, scaler.step(optimizer)):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(value, protocol)
        scaler.update(4.0)
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        copy.deepcopy(scaler)


def test_update_before_scale_is_refused_whatever_its_argument():
    for new_scale in (None, 2.0, 2, torch.ones(())):
        with pytest.raises(AssertionError, match="Attempted update but _scale is None"):
            AmpScaler("cpu").update(new_scale)
