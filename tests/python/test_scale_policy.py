"""ScalePolicy: its limits, the operator advance_scale_, and the two scalers under it, each against torch or by hand."""

import copy
import math
import pickle

import pytest
import torch

import ampscaler
from ampscaler import ScalePolicy

ops = torch.ops.ampscaler
SCALERS = [ampscaler.GradScaler, ampscaler.AmpScaler]
CAP = 2.0**24


def make_optimizer(gradient=1.0, lr=0.5):
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.full((1,), gradient)
    return torch.optim.SGD([parameter], lr=lr)


def iterate(scaler, gradient=1.0):
    """One iteration with that scaled gradient; the scale afterwards."""
    scaler.scale(torch.ones(()))
    scaler.step(make_optimizer(gradient))
    scaler.update()
    return scaler.get_scale()


def test_a_policy_is_a_value():
    policy = ScalePolicy(min_scale=0.5, max_scale=CAP)
    assert (policy.min_scale, policy.max_scale, policy.fix_upstream) == (0.5, CAP, False)
    assert repr(policy) == "ScalePolicy(min_scale=0.5, max_scale=16777216.0, fix_upstream=False)"
    assert eval(repr(policy)) == policy == copy.deepcopy(policy) == pickle.loads(pickle.dumps(policy))
    assert len({policy, copy.copy(policy), ScalePolicy()}) == 2
    assert policy != ScalePolicy(min_scale=0.5) and policy != "a policy"
    assert ScalePolicy().min_scale is None and ScalePolicy().max_scale is None
    with pytest.raises(AttributeError):
        policy.min_scale = 1.0
    with pytest.raises(TypeError):
        ScalePolicy(1.0)


def test_fix_upstream_is_part_of_the_value():
    policy = ScalePolicy(min_scale=0.5, fix_upstream=True)
    assert policy.fix_upstream and policy != ScalePolicy(min_scale=0.5)
    assert eval(repr(policy)) == copy.deepcopy(policy) == pickle.loads(pickle.dumps(policy)) == policy
    assert len({policy, ScalePolicy(min_scale=0.5)}) == 2
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(policy, protocol)) == policy
    for wrong in (1, 0, None, "yes", torch.tensor(True)):
        with pytest.raises(TypeError, match="fix_upstream"):
            ScalePolicy(fix_upstream=wrong)


def test_pickles_from_before_fix_upstream_load():
    loaded = ScalePolicy.__new__(ScalePolicy)
    loaded.__setstate__((0.5, CAP))
    assert loaded == ScalePolicy(min_scale=0.5, max_scale=CAP)


@pytest.mark.parametrize("name", ["min_scale", "max_scale"])
@pytest.mark.parametrize("value", [0.0, -1.0, 2.0**-127, 2.0**127, math.inf, math.nan])
def test_a_limit_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"ScalePolicy: {name}: expected a value in \[2\^-126, 2\^126\], got"):
        ScalePolicy(**{name: value})


def test_a_floor_above_the_cap_is_refused():
    with pytest.raises(ValueError, match="min_scale: expected at most max_scale = 2, got 4"):
        ScalePolicy(min_scale=4.0, max_scale=2.0)
    assert ScalePolicy(min_scale=4.0, max_scale=4.0).clamp(5.0) == 4.0


def test_limits_are_float32_values_like_the_scale():
    tenth = torch.tensor(0.1).item()
    assert ScalePolicy(max_scale=0.1).max_scale == tenth != 0.1
    scaler = ampscaler.GradScaler("cpu", policy=ScalePolicy(max_scale=0.1))
    assert scaler.get_scale() == tenth == iterate(scaler) == scaler.state_dict()["scale"]


def test_clamp_takes_numbers_and_tensors():
    policy = ScalePolicy(min_scale=2.0, max_scale=8.0)
    assert [policy.clamp(value) for value in (0.0, 3, math.inf)] == [2.0, 3.0, 8.0]
    values = torch.tensor([0.0, 3.0, math.inf])
    assert policy.clamp(values).tolist() == [2.0, 3.0, 8.0] and values[0] == 0.0
    with pytest.raises(ValueError, match="scale: expected a number, got nan"):
        policy.clamp(math.nan)
    for unlimited in (ScalePolicy(), ScalePolicy(fix_upstream=True)):
        assert math.isnan(unlimited.clamp(math.nan)) and unlimited.clamp(values) is values


@pytest.mark.parametrize("scaler_class", SCALERS)
def test_limits_need_not_fit_the_dtype_of_a_new_scale(scaler_class):
    scaler = scaler_class("cpu", policy=ScalePolicy(min_scale=2.0**-30, max_scale=CAP))
    scaler.scale(torch.ones(()))
    scaler.update(torch.tensor(0.0, dtype=torch.half))
    assert scaler.get_scale() == 2.0**-30


@pytest.mark.parametrize("wrong", ["a", None, [1.0]])
def test_clamp_refuses_what_is_no_number(wrong):
    with pytest.raises(TypeError, match="ScalePolicy: scale: expected a number or a tensor, got"):
        ScalePolicy(min_scale=1.0).clamp(wrong)


@pytest.mark.parametrize("scaler_class", SCALERS)
def test_the_scale_sinks_to_the_floor_and_leaves_it(scaler_class):
    scaler = scaler_class("cpu", policy=ScalePolicy(min_scale=1.0))
    scales = [iterate(scaler, math.inf) for _ in range(200)]
    assert scales == [max(2.0 ** (16 - skip), 1.0) for skip in range(1, 201)]
    for _ in range(1999):
        assert iterate(scaler) == 1.0
    assert iterate(scaler) == 2.0


@pytest.mark.parametrize("scaler_class", SCALERS)
def test_a_floor_below_one_is_accepted(scaler_class):
    scaler = scaler_class("cpu", init_scale=2.0**-9, policy=ScalePolicy(min_scale=2.0**-10))
    assert [iterate(scaler, math.nan) for _ in range(3)] == [2.0**-10] * 3


@pytest.mark.parametrize("scaler_class", SCALERS)
def test_the_scale_grows_to_the_cap_and_stays(scaler_class):
    scaler = scaler_class("cpu", growth_interval=1, policy=ScalePolicy(max_scale=CAP))
    assert [iterate(scaler) for _ in range(130)] == [min(2.0 ** (16 + step), CAP) for step in range(1, 131)]
    assert iterate(scaler, math.inf) == CAP / 2


def test_without_a_policy_torchs_limits_are_unchanged():
    scaler = ampscaler.GradScaler("cpu", growth_interval=1)
    assert [iterate(scaler) for _ in range(130)][-1] == 2.0**127
    assert "_ampscaler" not in scaler.__dict__
    assert list(scaler.__dict__) == list(torch.amp.GradScaler("cpu").__dict__)


@pytest.mark.parametrize("fix_upstream", [False, True])
def test_a_policy_without_limits_is_torchs_rule_to_the_bit(fix_upstream):
    ours = ampscaler.GradScaler("cpu", 1e30, 1.7, 0.3, 2, policy=ScalePolicy(fix_upstream=fix_upstream))
    stock = torch.amp.GradScaler("cpu", 1e30, 1.7, 0.3, 2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        gradient = math.inf if torch.rand((), generator=generator) < 0.4 else 1.0
        assert iterate(ours, gradient) == iterate(stock, gradient)
        assert ours.state_dict() == stock.state_dict()


@pytest.mark.parametrize("scaler_class", SCALERS)
def test_scales_from_outside_are_clamped(scaler_class):
    scaler = scaler_class("cpu", init_scale=1e9, policy=ScalePolicy(min_scale=2.0, max_scale=64.0))
    assert scaler.get_scale() == 64.0
    scaler.load_state_dict({**scaler.state_dict(), "scale": 0.0})
    assert scaler.get_scale() == 2.0
    assert scaler.scale(torch.ones(())).item() == 2.0
    half = torch.tensor(1024.0, dtype=torch.half)
    for given, expected in (
        (1e30, 64.0),
        (math.inf, 64.0),
        (0.0, 2.0),
        (torch.tensor(1e9), 64.0),
        (5.0, 5.0),
        (half, 64.0),
    ):
        scaler.update(given)
        assert scaler.get_scale() == expected
    scaler.load_state_dict({**scaler.state_dict(), "scale": 1e20})
    assert scaler.get_scale() == 64.0
    state = scaler.state_dict()
    for refused in (lambda: scaler.update(math.nan), lambda: scaler.load_state_dict({**state, "scale": math.nan})):
        with pytest.raises(ValueError, match="expected a number, got nan"):
            refused()
    assert scaler.state_dict() == state


def test_the_scale_tensor_is_never_replaced():
    scaler = ampscaler.GradScaler("cpu", growth_interval=1, policy=ScalePolicy(min_scale=1.0, max_scale=2.0**17))
    scaler.scale(torch.ones(()))
    tensor, tracker = scaler._scale, scaler._growth_tracker
    for gradient in [1.0] * 3 + [math.inf] * 20:
        iterate(scaler, gradient)
        assert 1.0 <= tensor.item() <= 2.0**17
    scaler.update(1e9)
    scaler.load_state_dict(scaler.state_dict())
    assert scaler._scale is tensor and scaler._growth_tracker is tracker


def test_a_scale_that_others_wrote_is_brought_back_by_the_next_update():
    scaler = ampscaler.GradScaler("cpu", policy=ScalePolicy(max_scale=64.0))
    scaler.scale(torch.ones(()))
    scaler._scale.fill_(1e9)
    assert iterate(scaler) == 64.0


def test_one_overflow_among_several_optimizers_backs_off_once():
    scaler = ampscaler.GradScaler("cpu", 64.0, policy=ScalePolicy(max_scale=64.0))
    scaler.scale(torch.ones(()))
    optimizers = [make_optimizer(gradient) for gradient in (1.0, math.inf, math.nan)]
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 32.0
    assert len(scaler._per_optimizer_states) == 0
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update."):
        scaler.update()


def test_torchs_errors_stay_torchs_under_a_policy():
    scaler = ampscaler.GradScaler("cpu", policy=ScalePolicy(max_scale=64.0))
    with pytest.raises(AssertionError, match="Attempted update but _scale is None"):
        scaler.update()
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        scaler.load_state_dict({})
    with pytest.raises(KeyError, match="scale"):
        scaler.load_state_dict({"growth_factor": 2.0})
    scaler.scale(torch.ones(()))
    with pytest.raises(AttributeError):
        scaler.update(8)
    for wrong in (torch.ones(2), torch.ones((), requires_grad=True)):
        with torch.no_grad(), pytest.raises(AssertionError, match="new_scale should be a float or a 1-element"):
            scaler.update(wrong)


@pytest.mark.parametrize("scaler_class", SCALERS)
def test_a_policy_is_given_by_name_and_checked(scaler_class):
    with pytest.raises(TypeError):
        scaler_class("cpu", 65536.0, 2.0, 0.5, 2000, True, ScalePolicy())
    with pytest.raises(TypeError):
        scaler_class("cpu", policy=2.0**24)


def test_a_disabled_scaler_looks_at_neither_scale_nor_policy():
    scaler = ampscaler.GradScaler("cpu", math.nan, enabled=False, policy=ScalePolicy(max_scale=64.0))
    scaler.update(math.nan)
    scaler.load_state_dict({})
    assert scaler.get_scale() == 1.0 and scaler.state_dict() == {}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda scaler: pickle.loads(pickle.dumps(scaler))])
def test_copies_keep_the_policy(copied):
    scaler = ampscaler.GradScaler("cpu", growth_interval=1, policy=ScalePolicy(max_scale=2.0**17))
    iterate(scaler)
    other = copied(scaler)
    assert [iterate(other) for _ in range(3)] == [2.0**17] * 3
    assert scaler.get_scale() == 2.0**17


def test_the_class_says_which_policy_it_has():
    policy = ScalePolicy(min_scale=1.0)
    assert ampscaler.AmpScaler("cpu", policy=policy).policy == policy
    assert ampscaler.AmpScaler("cpu").policy == ScalePolicy()


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.mark.parametrize("device", DEVICES)
def test_advance_scale_passes_opcheck(device):
    tracker = torch.full((), 2, dtype=torch.int32, device=device)
    scale, found_inf = torch.full((), 8.0, device=device), torch.zeros((), device=device)
    torch.library.opcheck(ops.advance_scale_.default, (scale, tracker, found_inf, [2.0, 0.5, 3.0, 1.0, 12.0]))


@pytest.mark.parametrize("device", DEVICES)
def test_advance_scale_is_torchs_update_and_clamp(device):
    for found in (0.0, 1.0, math.nan):
        for start in (0.0, 1.0, 3.0, 100.0, math.inf):
            expected, ours = (torch.full((), start, device=device) for _ in range(2))
            trackers = [torch.full((), 2, dtype=torch.int32, device=device) for _ in range(2)]
            flag = torch.full((), found, device=device)
            torch._amp_update_scale_(expected, trackers[0], flag, 1.7, 0.3, 3)
            ops.advance_scale_(ours, trackers[1], flag, [1.7, 0.3, 3.0, 0.7, 12.0])
            assert ours.item() == expected.clamp(0.7, 12.0).item()
            assert trackers[0].item() == trackers[1].item()


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ([2.0, 0.5, 3.0], "policy: expected 5 values .* got 3."),
        ([2.0, 0.5, 2.5, 1.0, 2.0], "growth_interval: expected an integer in \\[-2\\^53, 2\\^53\\], got 2.5"),
        ([2.0, 0.5, 3.0, 4.0, 2.0], "min_scale: expected at most max_scale = 2, got 4"),
        ([2.0, 0.5, 3.0, math.nan, 2.0], "min_scale: expected at most max_scale = 2, got nan"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_wrong_list_is_refused_and_nothing_changes(policy, text, device):
    scale, tracker = torch.full((), 8.0, device=device), torch.ones((), dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match=text):
        ops.advance_scale_(scale, tracker, torch.zeros((), device=device), policy)
    if device == "cpu":
        assert (scale.item(), tracker.item()) == (8.0, 1)


def test_a_compiled_iteration_does_what_the_eager_one_does():
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = ampscaler.GradScaler("cpu", growth_interval=1, policy=ScalePolicy(max_scale=2.0**18))

        def training_step(inputs, model=model, optimizer=optimizer, scaler=scaler):
            optimizer.zero_grad()
            scaler.scale(model(inputs).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()

        run = torch.compile(training_step, backend="eager") if compiled else training_step
        for _ in range(4):
            run(torch.ones(2, 4))
        results.append((scaler.state_dict(), model.weight.tolist()))
    assert results[0] == results[1] and results[0][0]["scale"] == 2.0**18
