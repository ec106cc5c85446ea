"""The drop-in: what it shares with torch's class, when the C++ path is taken, and when torch must see the call."""

import copy
import inspect
import pickle
from typing import ClassVar

import pytest
import torch

import ampscaler
from ampscaler import _C

CUDA = pytest.param("cuda", marks=pytest.mark.cuda)


def make(scale=4.0, gradient=8.0, cls=ampscaler.GradScaler, **options):
    """A scaler that is ready, an SGD with learning rate 1, and its parameter [1, 1]."""
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), gradient)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = cls("cpu", init_scale=scale, **options)
    scaler.scale(torch.ones(()))
    return scaler, optimizer, parameter


def test_it_is_torchs_scaler():
    assert issubclass(ampscaler.GradScaler, torch.amp.GradScaler)
    ours, theirs = (inspect.signature(c) for c in (ampscaler.GradScaler, torch.amp.GradScaler))
    parameters = dict(ours.parameters)
    for name, default in (("policy", None), ("fp16_grads", "error")):
        own = parameters.pop(name)
        assert (own.kind, own.default) == (own.KEYWORD_ONLY, default)
    assert list(parameters.values()) == list(theirs.parameters.values())
    for name, member in vars(torch.amp.GradScaler).items():
        if inspect.isfunction(member) and name != "__init__":
            assert inspect.signature(getattr(ampscaler.GradScaler, name)).parameters.keys() == (
                inspect.signature(member).parameters.keys()
            ), name


def test_it_has_exactly_torchs_attributes():
    def attributes(cls):
        return {name: type(value) for name, value in vars(make(cls=cls)[0]).items()}

    assert attributes(ampscaler.GradScaler) == attributes(torch.amp.GradScaler)
    disabled = ampscaler.GradScaler("cpu", enabled=False)
    assert set(vars(disabled)) == {"_device", "_enabled"}


@pytest.fixture
def answers(monkeypatch):
    """What the C++ path answered: a dict when it did the work, None when it left it to torch."""
    seen = []
    original = _C.unscale_param_groups

    def spy(*arguments):
        seen.append(original(*arguments))
        return seen[-1]

    monkeypatch.setattr(_C, "unscale_param_groups", spy)
    return seen


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_plain_gradients_take_the_cpp_path(answers, device, dtype):
    if device == "cuda" and dtype == torch.bfloat16:
        pytest.skip("torch refuses bfloat16 on CUDA, and so does a drop-in")
    parameter = torch.nn.Parameter(torch.ones(3, 2, dtype=dtype, device=device))
    parameter.grad = torch.full((2, 3), 8.0, dtype=dtype, device=device).t()
    scaler = ampscaler.GradScaler(device, init_scale=4.0)
    scaler.scale(torch.ones((), device=device))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler.unscale_(optimizer)
    assert list(answers[0]) == [parameter.device]
    assert bool((parameter.grad == 2.0).all())
    recorded = scaler._found_inf_per_device(optimizer)
    assert recorded[parameter.device] is answers[0][parameter.device]


class FunctionSubclass(torch.Tensor):
    """Sees torch functions, but looks plain from C++."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.seen.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


@pytest.mark.parametrize("kind", ["sliced", "subclass"])
def test_other_gradients_are_left_to_torch(answers, kind):
    gradients = {
        "sliced": torch.full((2, 4), 8.0)[:, ::2][0],
        "subclass": torch.full((2,), 8.0).as_subclass(FunctionSubclass),
    }
    scaler, optimizer, parameter = make()
    parameter.grad = gradient = gradients[kind]
    FunctionSubclass.seen.clear()
    scaler.unscale_(optimizer)
    assert answers == [None]
    assert parameter.grad is gradient
    assert gradient.tolist() == [2.0, 2.0]
    if kind == "subclass":
        assert "_amp_foreach_non_finite_check_and_unscale_" in FunctionSubclass.seen


def test_sparse_gradients_are_left_to_torch(answers):
    scaler, optimizer, parameter = make()
    parameter.grad = torch.sparse_coo_tensor([[0, 0]], torch.tensor([8.0, 8.0]), (2,))
    scaler.unscale_(optimizer)
    assert answers == [None]
    assert parameter.grad.to_dense().tolist() == [4.0, 0.0]


def test_dispatch_modes_see_torchs_operator(answers):
    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    names: list[str] = []
    scaler, optimizer, parameter = make()
    with Recorder():
        scaler.unscale_(optimizer)
    assert answers == [None]
    assert "aten._amp_foreach_non_finite_check_and_unscale_.default" in names
    assert parameter.grad.tolist() == [2.0, 2.0]


def test_function_modes_see_torchs_function(answers):
    class Recorder(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            names.append(getattr(function, "__name__", ""))
            return function(*args, **(kwargs or {}))

    names: list[str] = []
    scaler, optimizer, _ = make()
    with Recorder():
        scaler.unscale_(optimizer)
    assert answers == [None]
    assert "_amp_foreach_non_finite_check_and_unscale_" in names


def test_fake_tensors_work():
    with torch._subclasses.FakeTensorMode():
        scaler, optimizer, parameter = make()
        scaler.unscale_(optimizer)
        scaler.update()
    assert type(parameter.grad) is torch._subclasses.FakeTensor
    assert type(scaler._scale) is torch._subclasses.FakeTensor


@pytest.mark.parametrize("context", [torch.autocast("cpu", torch.bfloat16), torch.inference_mode()])
def test_autocast_and_inference_mode_keep_the_cpp_path(answers, context):
    with context:
        scaler, optimizer, parameter = make()
        scaler.unscale_(optimizer)
    assert list(answers[0]) == [torch.device("cpu")]
    assert parameter.grad.tolist() == [2.0, 2.0]


def test_a_half_gradient_is_refused_by_torch_before_anything_is_written(answers):
    scaler, optimizer, parameter = make()
    half = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    half.grad = torch.ones_like(half)
    optimizer.add_param_group({"params": [half]})
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients."):
        scaler.unscale_(optimizer)
    assert answers == [None]
    assert parameter.grad.tolist() == [8.0, 8.0]


def test_a_generator_of_parameters_is_walked_once(answers):
    scaler, _, parameter = make()

    class Once:
        param_groups = [{"params": (p for p in [parameter])}]  # noqa: RUF012

    scaler.unscale_(Once())
    assert answers == [None]
    assert parameter.grad.tolist() == [2.0, 2.0]


def test_a_property_is_read_once_as_by_torch():
    def reads(cls):
        class Counting:
            count = 0

            @property
            def param_groups(self):
                self.count += 1
                return [{"params": [parameter]}]

        scaler, _, parameter = make(cls=cls)
        optimizer = Counting()
        scaler.unscale_(optimizer)
        return optimizer.count

    assert reads(ampscaler.GradScaler) == reads(torch.amp.GradScaler)


@pytest.mark.parametrize("allow_fp16", ["x", [], 1, torch.ones(2)])
def test_allow_fp16_counts_by_its_truth_value_as_in_torch(allow_fp16):
    def unscaled(cls):
        scaler, optimizer, parameter = make(cls=cls)
        try:
            scaler._unscale_grads_(optimizer, torch.full((), 0.5), torch.zeros(()), allow_fp16)
        except RuntimeError as error:
            return str(error)
        return parameter.grad.tolist()

    assert unscaled(ampscaler.GradScaler) == unscaled(torch.amp.GradScaler)


def test_graph_carrying_gradients_stay_usable():
    scaler, optimizer, parameter = make()
    loss = (parameter**3).sum() * 4.0
    (parameter.grad,) = torch.autograd.grad(loss, parameter, create_graph=True)
    version = parameter.grad._version
    scaler.unscale_(optimizer)
    assert parameter.grad._version == version
    assert parameter.grad.tolist() == [3.0, 3.0]
    parameter.grad.sum().backward()


# ---- what other libraries do with the object ----


def test_overrides_and_patches_are_reached():
    calls = []

    class Sub(ampscaler.GradScaler):
        def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
            calls.append("class")
            return super()._unscale_grads_(optimizer, inv_scale, found_inf, True)

    scaler, optimizer, _ = make(scale=1024.0, cls=Sub)
    half = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    half.grad = torch.full((2,), 3072.0, dtype=torch.float16)
    optimizer.add_param_group({"params": [half]})
    original = scaler._unscale_grads_
    scaler._unscale_grads_ = lambda *arguments: (calls.append("instance"), original(*arguments))[1]
    scaler.unscale_(optimizer)
    assert calls == ["instance", "class"]
    assert half.grad.tolist() == [3.0, 3.0]


def test_a_step_patched_on_the_instance_gets_positional_arguments():
    scaler, optimizer, _ = make()
    optimizer.step = lambda *args: args
    assert scaler.step(optimizer, None) == (None,)


def test_a_replaced_scale_tensor_is_used():
    scaler, optimizer, parameter = make()
    scaler._scale = torch.tensor([2.0])
    scaler.unscale_(optimizer)
    assert parameter.grad.tolist() == [4.0, 4.0]


def test_two_scalers_may_share_their_tensors():
    first, optimizer, _ = make(gradient=float("inf"))
    second = make()[0]
    second._scale, second._growth_tracker = first._scale, first._growth_tracker
    first.step(optimizer)
    first.update()
    assert second.get_scale() == 2.0


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_start_from_the_state(clone):
    scaler, optimizer, _ = make(gradient=float("inf"))
    scaler.step(optimizer)
    scaler.update()
    other = clone(scaler)
    assert type(other) is ampscaler.GradScaler
    assert other.state_dict() == scaler.state_dict()
    assert other.state_dict()["scale"] == 2.0


def test_state_dicts_travel_between_both_classes(tmp_path):
    ours, _, _ = make(scale=512.0)
    torch.save(ours.state_dict(), tmp_path / "scaler.pt")
    theirs = torch.amp.GradScaler("cpu")
    theirs.load_state_dict(torch.load(tmp_path / "scaler.pt", weights_only=True))
    assert theirs.state_dict() == ours.state_dict()


def test_the_scale_and_its_address_stay_in_place():
    scaler, optimizer, _ = make(gradient=float("nan"))
    scale, address = scaler._scale, scaler._scale.data_ptr()
    scaler.step(optimizer)
    scaler.update()
    assert scaler._scale is scale
    assert scale.data_ptr() == address
    assert scale.item() == 2.0


def test_a_real_run_equals_torchs_bit_for_bit():
    def train(cls):
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scaler = cls("cpu", init_scale=2.0**24, growth_interval=5)
        scales = []
        for _ in range(40):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = model(torch.randn(32, 8)).float().square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales, [parameter.detach().clone() for parameter in model.parameters()]

    (our_scales, ours), (their_scales, theirs) = (
        train(ampscaler.GradScaler),
        train(torch.amp.GradScaler),
    )
    assert our_scales == their_scales
    assert min(our_scales) < 2.0**24  # an overflow occurred
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
