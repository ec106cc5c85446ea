"""The failures of docs/when_mixed_precision_does_not_fit.md: each program shows what the page says, in numbers."""

import importlib.util
import pathlib

import pytest
import torch

import ampscaler
from ampscaler import ScalePolicy

ROOT = pathlib.Path(__file__).parents[2]
INF = float("inf")


def load(name):
    """The example program of that name as a module, without running its main."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"examples/python/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def one_thread():
    """The numbers come from tensors of a few elements."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["torch", "ampscaler"])
def test_without_a_floor_the_scale_sinks_to_0_and_the_parameter_becomes_nan(name):
    program = load("failure_scale_sinks")
    outcome = program.run(program.make_scaler(name), bad_steps=170)
    assert (outcome.scale_is_1_at, outcome.inverse_is_inf_at, outcome.scale_is_0_at) == (16, 144, 166)
    assert (outcome.scale_after_bad_steps, outcome.scale_after_good_steps) == (0.0, 0.0)
    # The gradient times 0 is 0, which passes the check; 0 times 1/0 is NaN, which is then applied.
    assert outcome.applied == program.GOOD_STEPS
    assert outcome.parameter != outcome.parameter


@pytest.mark.parametrize("name", ["torch", "ampscaler"])
def test_a_scale_that_sank_below_fp16_makes_the_parameter_stand_still(name):
    program = load("failure_scale_sinks")
    outcome = program.run(program.make_scaler(name), bad_steps=60)
    assert (outcome.scale_after_bad_steps, outcome.scale_after_good_steps) == (2.0**-44, 2.0**-43)
    assert outcome.applied == program.GOOD_STEPS
    assert outcome.parameter == 1.0


@pytest.mark.parametrize("bad_steps", [60, 170])
def test_with_a_floor_the_scale_stays_and_the_training_goes_on(bad_steps):
    program = load("failure_scale_sinks")
    outcome = program.run(program.make_scaler("ampscaler, min_scale=1"), bad_steps)
    assert (outcome.scale_is_1_at, outcome.inverse_is_inf_at, outcome.scale_is_0_at) == (16, None, None)
    assert (outcome.scale_after_bad_steps, outcome.scale_after_good_steps) == (1.0, 2.0)
    assert outcome.applied == program.GOOD_STEPS == 2000
    assert outcome.parameter == 1.0 - 2000 / 1024


@pytest.mark.parametrize(("min_scale", "last"), [(None, 0.0), (1.0, 1.0), (2.0**-10, 2.0**-10)])
def test_the_cpp_class_has_the_same_floor_and_counts_skips_there(min_scale, last):
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = ampscaler.AmpScaler("cpu", policy=ScalePolicy(min_scale=min_scale))
    skips = 0
    for _ in range(166):
        optimizer.zero_grad()
        scaler.scale((parameter * INF).sum()).backward()
        skips += not scaler.step(optimizer).applied()
        scaler.update()
    assert (skips, scaler.get_scale(), parameter.item()) == (166, last, 1.0)


def test_log_softmax_in_fp16_hides_its_overflow_from_the_loss():
    program = load("failure_log_softmax")
    half, single = program.entropy_bonus(torch.float16), program.entropy_bonus(torch.float32)
    assert (half.loss, half.nonfinite_gradients, half.lowest_log_probability) == (1.0, 3, -INF)
    assert (single.loss, single.nonfinite_gradients, single.lowest_log_probability) == (1.0, 0, -120000.0)
    assert program.entropy_bonus(torch.bfloat16, torch.bfloat16).nonfinite_gradients == 0


def test_an_ignored_row_needs_float32_from_the_layer_that_overflows():
    program = load("failure_log_softmax")
    results = [program.ignored_row(*remedies) for remedies in ((False, False), (False, True), (True, True))]
    assert [result.loss for result in results] == [0.0, 0.0, 0.0]
    assert [result.nonfinite_gradients for result in results] == [2, 2, 0]
    assert program.ignored_row(False, False, torch.bfloat16).nonfinite_gradients == 0


def test_autocast_on_the_cpu_leaves_log_softmax_in_fp16_but_not_cross_entropy():
    """The page tells readers to cast; this fails when a torch makes that advice needless."""
    assert load("failure_log_softmax").autocast_dtype_of_log_softmax("cpu") == torch.float16
    logits = torch.tensor([[60000.0, -60000.0]], dtype=torch.float16)
    with torch.autocast("cpu", torch.float16):
        assert torch.nn.functional.cross_entropy(logits, torch.tensor([1])).item() == 120000.0


@pytest.mark.cuda
def test_autocast_on_cuda_runs_log_softmax_in_float32():
    assert load("failure_log_softmax").autocast_dtype_of_log_softmax("cuda") == torch.float32


def test_without_a_cap_ordinary_gradients_overflow_at_regular_intervals():
    """From 2^10 six doublings of 4 steps each end at 2^16, where a gradient of 1 is beyond fp16's 65504."""
    growth = load("failure_scale_grows").grow(None)
    assert growth.skipped == list(range(25, 101, 5))
    assert (growth.largest, growth.last) == (2.0**16, 2.0**15)


@pytest.mark.parametrize(("max_scale", "skips"), [(2.0**15, 0), (2.0**16, 16)])
def test_a_cap_below_the_overflow_ends_the_skips(max_scale, skips):
    growth = load("failure_scale_grows").grow(ScalePolicy(max_scale=max_scale))
    assert (len(growth.skipped), growth.largest) == (skips, max_scale)


@pytest.mark.parametrize(("max_scale", "largest", "step"), [(None, 2.0**127, 111), (2.0**24, 2.0**24, 8)])
def test_where_nothing_overflows_only_the_cap_stops_the_scale(max_scale, largest, step):
    scales = load("failure_scale_grows").grow_in_float32(ScalePolicy(max_scale=max_scale))
    assert (len(scales), max(scales), scales[-1], scales.index(largest) + 1) == (130, largest, largest, step)


def test_a_skipped_step_has_changed_batch_norm_already():
    program = load("failure_batch_norm")
    outcome = program.train(2.0**20, None)
    assert (outcome.applied, outcome.skipped, outcome.batches_tracked) == (14, 6, 20)
    assert outcome.statistics_finite and outcome.evaluation_finite
    restored = program.train(2.0**20, None, restore=True)
    assert (restored.skipped, restored.batches_tracked) == (6, 14)


def test_an_overflow_in_the_forward_pass_stays_in_batch_norm():
    outcome = load("failure_batch_norm").train(2.0**8, 10)
    assert (outcome.applied, outcome.skipped) == (19, 1)
    assert not outcome.statistics_finite and not outcome.evaluation_finite


@pytest.mark.parametrize(("remedy", "skips"), [("restore", 1), ("first_in_float32", 0)])
def test_batch_norm_is_saved_by_restoring_it_or_by_a_layer_in_float32(remedy, skips):
    outcome = load("failure_batch_norm").train(2.0**8, 10, **{remedy: True})
    assert (outcome.skipped, outcome.batches_tracked) == (skips, 20 - skips)
    assert outcome.statistics_finite and outcome.evaluation_finite


def test_batch_norm_in_fp16_overflows_where_its_input_does_not():
    """60000^2 * 2 / 1 is the unbiased variance of +-60000; a tenth of it goes into the running one."""
    program = load("failure_batch_norm")
    assert program.running_variance(torch.float16) == INF
    assert program.running_variance(torch.float32) == pytest.approx(7.2e8, rel=1e-6)


def test_small_gradients_vanish_in_fp16_without_scaling():
    program = load("failure_vanishing_gradients")
    assert program.known_gradients(1.0) == (program.Zeros(total=32, zero=8, nonfinite=0), 24)
    assert program.known_gradients(2.0**16) == (program.Zeros(total=32, zero=0, nonfinite=0), 32)
    assert program.known_gradients(1.0, torch.bfloat16) == (program.Zeros(total=32, zero=0, nonfinite=0), 32)


def test_gradients_of_a_model_near_its_optimum_vanish_in_fp16_without_scaling():
    """Nearly half of the output gradients are at most 2^-25, and more of the hidden ones, their products."""
    program = load("failure_vanishing_gradients")
    hidden, weight = program.near_the_optimum(1.0)
    assert hidden.zero > 0.75 * hidden.total
    assert weight.zero > 0
    hidden, weight = program.near_the_optimum(2.0**16)
    assert hidden.zero < 0.01 * hidden.total
    assert (weight.zero, hidden.nonfinite, weight.nonfinite) == (0, 0, 0)


def test_a_custom_function_in_fp16_overflows_and_its_gradient_is_silently_0():
    program = load("failure_custom_function")
    loss, gradient = program.log_square_in_training(program.LogSquare)
    assert loss == INF
    assert gradient.isfinite().all()
    assert gradient[0] == 0.0 and program.reference()[0] > 0.006


def test_a_custom_function_with_cast_inputs_gives_the_gradients_of_float32():
    """Up to one rounding to fp16, where the gradient leaves the function for its fp16 input."""
    program = load("failure_custom_function")
    loss, gradient = program.log_square_in_training(program.SafeLogSquare)
    reference = program.reference()
    assert loss == pytest.approx(torch.log1p(torch.tensor(program.INPUTS).square()).sum().item(), rel=1e-6)
    assert ((gradient - reference).abs() <= 2.0**-11 * reference.abs()).all()
    assert torch.equal(gradient, (reference * 2.0**10).half().float() / 2.0**10)


def test_a_custom_backward_needs_the_autocast_of_its_forward():
    program = load("failure_custom_function")
    assert "same dtype" in program.matmul_in_training(program.MatMul)
    # The column sums of x, exact in fp16; torch's own product gives the same.
    assert program.matmul_in_training(program.SafeMatMul).tolist() == [[1.5, 1.5], [1.0, 1.0]]


def test_nested_autocast_keeps_bootstrapped_values_that_fp16_rounds_or_loses():
    program = load("failure_nested_autocast")
    assert [program.bootstrapped_value(value, in_float32=False) for value in (2049.0, 70000.0)] == [2048.0, INF]
    assert [program.bootstrapped_value(value, in_float32=True) for value in (2049.0, 70000.0)] == [2049.0, 70000.0]


def test_the_target_network_moves_only_where_both_steps_were_applied():
    program = load("failure_nested_autocast")
    report = program.train()
    # 2^30 overflows in both networks at first, then in the value network alone, then in none.
    assert (report.policy_applied, report.value_applied, program.ITERATIONS) == (13, 9, 30)
    assert (report.both_applied, report.only_one_applied, report.soft_updates) == (9, 4, 9)
    assert report.target_moved_without_both == 0
    assert (report.target_dtype, report.finite) == (torch.float32, True)
    # One halving for each iteration in which either overflowed, and none twice.
    assert report.scale == 2.0 ** (30 - (program.ITERATIONS - report.both_applied))
