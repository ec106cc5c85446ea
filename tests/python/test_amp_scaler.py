"""ampscaler.AmpScaler: the C++ class on Python optimizers, against torch's scaler and by its own promises."""

import itertools
import threading
import time
import warnings

import pytest
import torch

import ampscaler
from ampscaler import AmpScaler, StepOutcome

INF = float("inf")


def make(scale=4.0, gradient=8.0, optimizer=torch.optim.SGD, **options):
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), gradient)
    scaler = AmpScaler("cpu", init_scale=scale)
    scaler.scale(torch.ones(()))
    return scaler, optimizer([parameter], lr=1.0, **options), parameter


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "fused_adam": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "fused_sgd": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
}


@pytest.mark.parametrize("explicit_unscale", [False, True])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_it_trains_as_torchs_scaler_does(kind, explicit_unscale):
    def train(cls):
        torch.manual_seed(3)
        model = torch.nn.Linear(4, 2)
        optimizer = OPTIMIZERS[kind](model.parameters())
        scaler = cls("cpu", init_scale=3000.0, growth_interval=3)
        states = []
        for i in range(12):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(3, 4)).square().mean()).backward()
            if i in (2, 7):
                model.weight.grad[0, 0] = INF
            if explicit_unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            states.append(scaler.state_dict())
        return states, [parameter.detach() for parameter in model.parameters()]

    ours, theirs = train(AmpScaler), train(torch.amp.GradScaler)
    assert ours[0] == theirs[0]
    assert all(torch.equal(a, b) for a, b in zip(ours[1], theirs[1], strict=True))


def test_step_says_what_it_did_and_returns_the_optimizers_value():
    scaler, optimizer, _ = make()
    optimizer.step = lambda *args, **kwargs: ("value", args, kwargs)
    result = scaler.step(optimizer, 1, key=2)
    assert result.value == ("value", (1,), {"key": 2})
    assert result.applied()
    assert result.outcome() is StepOutcome.APPLIED
    assert result.found_inf.item() == 0.0


def test_a_skipped_step_says_so():
    scaler, optimizer, parameter = make(gradient=INF)
    result = scaler.step(optimizer)
    assert not result.applied()
    assert result.outcome() is StepOutcome.SKIPPED_NONFINITE
    assert result.value is None
    assert result.found_inf.item() == 1.0
    assert parameter.tolist() == [1.0, 1.0]


def test_a_disabled_scaler_runs_the_optimizer_with_everything():
    scaler = AmpScaler("cpu", enabled=False)
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    result = scaler.step(optimizer, closure=lambda: 5)
    assert (result.value, result.outcome()) == (5, StepOutcome.DISABLED)
    assert result.found_inf is None
    assert scaler.scale("anything") == "anything"
    assert scaler.state_dict() == {}
    scaler.update(7)


def test_host_reads_are_one_per_ordinary_step_and_none_for_fused():
    for fused, expected in ((False, 1), (True, 0)):
        scaler, optimizer, _ = make(optimizer=torch.optim.Adam, fused=fused)
        before = ampscaler._C.host_read_count()
        scaler.step(optimizer)
        scaler.update()
        assert ampscaler._C.host_read_count() - before == expected


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_a_skipped_fused_step_leaves_everything_as_it_was(kind):
    parameter = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = getattr(torch.optim, kind)([parameter], lr=0.1, fused=True)
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        pytest.skip(f"in torch {torch.__version__} fused {kind} does not take the scale itself")
    scaler = AmpScaler("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    parameter.grad = torch.tensor([INF, 1.0])
    assert not scaler.step(optimizer).applied()
    scaler.update()
    assert parameter.tolist() == [1.0, 2.0]
    assert parameter.grad.tolist() == [INF, 1.0]
    assert scaler.get_scale() == 2.0
    assert not hasattr(optimizer, "grad_scale")
    assert not hasattr(optimizer, "found_inf")
    parameter.grad = torch.tensor([8.0, 4.0])
    assert scaler.step(optimizer).applied()
    assert parameter.grad.tolist() == [4.0, 2.0]


def test_a_users_factor_counts_on_top_of_the_scale_and_survives():
    scaler, optimizer, parameter = make(optimizer=torch.optim.SGD, fused=True)
    optimizer.grad_scale = torch.full((), 2.0)
    scaler.step(optimizer)
    assert parameter.tolist() == [0.0, 0.0]  # 1 - 8 / (4 * 2)
    assert optimizer.grad_scale.item() == 2.0


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


def test_an_optimizer_of_the_older_protocol_gets_unscaled_gradients():
    class Older(torch.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure=None, *, grad_scaler=None):
            assert grad_scaler is None
            return super().step(closure)

    scaler, optimizer, parameter = make(optimizer=Older)
    scaler.step(optimizer)
    assert parameter.tolist() == [-1.0, -1.0]


def test_shared_gradients_and_repeated_parameters_are_divided_once():
    scaler, _, parameter = make(gradient=16.0)
    other = torch.nn.Parameter(torch.ones(2))
    other.grad = parameter.grad

    class Twice:
        param_groups = ({"params": [parameter, other]}, {"params": (parameter,)})

        def step(self):
            return None

    scaler.step(Twice())
    assert parameter.grad.tolist() == [4.0, 4.0]


def test_containers_are_scaled_like_torchs():
    scaler, theirs = AmpScaler("cpu", init_scale=4.0), torch.amp.GradScaler("cpu", init_scale=4.0)

    class MyList(list):
        pass

    outputs = MyList([torch.ones(2), (torch.ones(()), [torch.ones(1)])])
    ours, reference = scaler.scale(outputs), theirs.scale(outputs)
    assert type(ours) is MyList
    assert str(ours) == str(reference)
    assert type(scaler.scale(x for x in [torch.ones(1)])) is map
    assert scaler.scale([]) == []
    with pytest.raises(ValueError, match="outputs must be a Tensor or an iterable of Tensors"):
        scaler.scale(5)


def test_a_subclass_keeps_its_type():
    class Sub(torch.Tensor):
        pass

    assert type(AmpScaler("cpu").scale(torch.ones(2).as_subclass(Sub))) is Sub


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
        for wrong in ([1.0], "1", None, True, 2**80):
            with pytest.raises(TypeError, match=key):
                scaler.load_state_dict(good | {key: wrong})
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        scaler.load_state_dict({})
    assert scaler.get_scale() == 4.0
    scaler.load_state_dict(good | {"extra": object()})
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


def test_an_attribute_of_the_class_stays_one():
    class Fused(torch.optim.SGD):
        grad_scale = None

    scaler, optimizer, parameter = make(optimizer=Fused, fused=True)
    scaler.step(optimizer)
    assert "grad_scale" not in vars(optimizer)
    assert parameter.tolist() == [-1.0, -1.0]


@pytest.mark.cuda
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_trains_on_cuda(kind, dtype):
    parameter = torch.nn.Parameter(torch.ones(2, dtype=dtype, device="cuda"))
    optimizer = OPTIMIZERS[kind]([parameter])
    scaler = AmpScaler("cuda", init_scale=4.0)
    scaler.scale(torch.ones((), device="cuda"))
    parameter.grad = torch.full_like(parameter, INF)
    assert not scaler.step(optimizer).applied()
    scaler.update()
    assert scaler.get_scale() == 2.0
    assert parameter.tolist() == [1.0, 1.0]
    parameter.grad = torch.full_like(parameter, 4.0)
    assert scaler.step(optimizer).applied()
    scaler.update()
    assert parameter[0].item() < 1.0


@pytest.mark.cuda
def test_gradients_on_two_kinds_of_device_decide_together():
    scaler = AmpScaler("cuda", init_scale=4.0)
    scaler.scale(torch.ones((), device="cuda"))
    parameters = [torch.nn.Parameter(torch.ones(2, device=device)) for device in ("cuda", "cpu")]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    for bad in range(2):
        for index, parameter in enumerate(parameters):
            parameter.grad = torch.full_like(parameter, INF if index == bad else 4.0)
        assert not scaler.step(optimizer).applied()
        scaler.update()
    assert scaler.get_scale() == 1.0
