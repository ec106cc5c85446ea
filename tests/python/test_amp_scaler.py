"""ampscaler.AmpScaler: the C++ class on Python optimizers, against torch's scaler and by its own promises."""

import warnings

import pytest
import torch

import ampscaler
from amp_scaler_cases import INF, make
from ampscaler import AmpScaler, StepOutcome

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


def test_an_attribute_of_the_class_stays_one():
    class Fused(torch.optim.SGD):
        grad_scale = None

    scaler, optimizer, parameter = make(optimizer=Fused, fused=True)
    scaler.step(optimizer)
    assert "grad_scale" not in vars(optimizer)
    assert parameter.tolist() == [-1.0, -1.0]


def two_groups(scaler_class):
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.full((2,), 16.0)
    optimizer = torch.optim.SGD([{"params": [p]} for p in parameters], lr=1.0)
    scaler = scaler_class("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    return scaler, optimizer, parameters


@pytest.mark.parametrize("change", ["reverse", "pop", "insert", "replace_list"])
@pytest.mark.parametrize("bad", [False, True])
def test_groups_may_change_between_unscale_and_step(change, bad):
    results = []
    for scaler_class in (AmpScaler, torch.amp.GradScaler):
        scaler, optimizer, parameters = two_groups(scaler_class)
        if bad:
            parameters[0].grad[0] = INF
        scaler.unscale_(optimizer)
        if change == "reverse":
            optimizer.param_groups.reverse()
        elif change == "pop":
            optimizer.param_groups.pop(0)
        elif change == "insert":
            fresh = torch.nn.Parameter(torch.ones(1))
            optimizer.param_groups.insert(0, dict(optimizer.param_groups[0], params=[fresh]))
        else:
            optimizer.param_groups = [dict(group) for group in optimizer.param_groups]
        scaler.step(optimizer)
        with pytest.raises(RuntimeError, match="has already been called"):
            scaler.step(optimizer)
        scaler.update()
        results.append((scaler.get_scale(), [p.grad.tolist() for p in parameters], [p.tolist() for p in parameters]))
    assert results[0] == results[1]


def test_a_new_optimizer_at_an_old_address_starts_afresh():
    scaler = AmpScaler("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    for _ in range(50):  # each dies right away, so that addresses are reused
        parameter = torch.nn.Parameter(torch.ones(2))
        parameter.grad = torch.full((2,), 8.0)
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        scaler.unscale_(optimizer)
        assert parameter.grad.tolist() == [2.0, 2.0]
        del parameter, optimizer


def test_generators_of_parameters_are_unscaled_once():
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), 8.0)

    class Once:
        param_groups = ({"params": (p for p in [parameter])},)

        def step(self):
            return "stepped"

    scaler, optimizer = make()[0], Once()
    scaler.unscale_(optimizer)
    assert scaler.step(optimizer).value == "stepped"
    assert parameter.grad.tolist() == [2.0, 2.0]


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


@pytest.mark.parametrize("cls", [AmpScaler, torch.amp.GradScaler])
def test_a_warning_of_torchs_cpp_code_is_a_python_warning(cls):
    torch.set_warn_always(True)
    scaler = cls("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    try:
        with pytest.warns(UserWarning, match="Casting complex values to real discards the imaginary part"):
            scaler.update(torch.tensor(2 + 1j))
    finally:
        torch.set_warn_always(False)
    assert scaler.get_scale() == 2.0


def test_an_error_while_warnings_are_errors_reaches_python():
    """The warning is about the gradient of a non-leaf, the error about the float16 gradient."""
    non_leaf = torch.ones(2, requires_grad=True) * 2.0
    half = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    half.grad = torch.ones_like(half)
    scaler, optimizer, _ = make()
    optimizer.param_groups[0]["params"] = [non_leaf, half]
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(), pytest.raises(ValueError, match="Attempting to unscale FP16 gradients."):
            warnings.simplefilter("error")
            scaler.unscale_(optimizer)
    finally:
        torch.set_warn_always(False)
