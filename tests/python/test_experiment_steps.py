"""One training attempt of the experiment: against the same chain written out, and on a clock that counts marks."""

import pytest
import torch

from experiment_cases import clock, data, go_offline, model, parse_options, steps

TINY = model.ModelPlan("tiny", None, None)
OPTIONS = parse_options(["--seq-len", "16", "--repeats", "2"])


class CountingMeter:
    """Time is the number of marks so far."""

    def __init__(self):
        self.now = -1

    def mark(self):
        self.now += 1
        return self.now

    def milliseconds(self, begin, end):
        return float(end - begin)


@pytest.fixture(autouse=True)
def offline_and_reproducible(monkeypatch, tmp_path):
    go_offline(monkeypatch, tmp_path)
    with steps.reproducible(torch.nn.Linear(1, 1)):
        yield


@pytest.fixture
def batches():
    tokenizer, _ = model.load_tokenizer(None)
    return data.make_batches(tokenizer, OPTIONS)


def make_trainer(init_scale, dtype=torch.float16, enabled=True):
    scaler = torch.amp.GradScaler("cpu", init_scale=init_scale, enabled=enabled)
    settings = {"dtype": dtype, "learning_rate": 0.5, "max_norm": 1.0}
    return steps.Trainer(model.load_network(TINY, 1), scaler, CountingMeter(), **settings)


def test_an_applied_attempt_is_one_step_of_sgd_on_the_clipped_gradient(batches):
    trainer = make_trainer(1.0, torch.float32, enabled=False)
    attempt = trainer.attempt(batches[0])
    network = model.load_network(TINY, 1)
    loss = network(input_ids=batches[0], labels=batches[0]).loss
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    torch.optim.SGD(network.parameters(), lr=0.5).step()
    assert (attempt.loss, attempt.grad_norm, attempt.applied) == (loss.item(), norm.item(), True)
    assert norm.item() > 1.0  # the clip did something
    for name, weight in network.named_parameters():
        assert torch.equal(trainer.network.get_parameter(name), weight), name


def test_the_times_of_an_applied_attempt(batches):
    """Marks: begin 0, after backward 1, the optimizer 2 to 3, end 4."""
    attempt = make_trainer(1024.0).attempt(batches[0])
    assert (attempt.applied, attempt.step_ms, attempt.scaler_ms) == (True, 4.0, 2.0)


def test_a_skipped_attempt_changes_nothing_but_the_scale(batches):
    trainer = make_trainer(1024.0)
    before = {name: weight.detach().clone() for name, weight in trainer.network.named_parameters()}
    attempt = trainer.attempt(batches[0], loss_factor=float("inf"))
    assert (attempt.applied, attempt.scale_before, attempt.scale_after) == (False, 1024.0, 512.0)
    assert (attempt.step_ms, attempt.scaler_ms) == (2.0, 1.0)
    for name, weight in trainer.network.named_parameters():
        assert torch.equal(before[name], weight), name


def test_the_scale_leaves_the_norm_as_it_is(batches):
    norms = [make_trainer(2.0**exponent).attempt(batches[0]).grad_norm for exponent in (6, 10)]
    unscaled = make_trainer(1.0, torch.float32, enabled=False).attempt(batches[0]).grad_norm
    assert norms == pytest.approx([unscaled, unscaled], rel=0.01)  # fp16 has 11 bits


def test_batches_are_those_of_the_seed(batches):
    tokenizer, source = model.load_tokenizer(None)
    assert source == "byte_level"
    assert batches.shape == (3, 1, 16)
    assert torch.equal(data.make_batches(tokenizer, OPTIONS), batches)
    other = parse_options(["--seq-len", "16", "--repeats", "2", "--seed", "1"])
    assert not torch.equal(data.make_batches(tokenizer, other), batches)
    endless = (tokenizer.decode(data.make_stream(tokenizer)) * 2).replace(" ", "")
    assert tokenizer.decode(batches[0, 0]).replace(" ", "") in endless


def test_the_probe_is_compared_by_its_bits():
    assert steps.digest(torch.tensor([0.0])) != steps.digest(torch.tensor([-0.0]))
    assert steps.digest(torch.tensor([1.5])) == steps.digest(torch.tensor([1.5]))


def test_the_process_peak_rises_with_an_allocation_and_says_its_name():
    meter = clock.CpuMeter()
    meter.reset_peak()
    before = meter.peak_mb()
    torch.ones(64 * 2**20 // 4)
    assert before > 10
    if "VmHWM" in meter.memory_source:
        assert meter.peak_mb() > before + 50
    assert meter.memory_source in (
        "process peak RSS, reset before the run (VmHWM)",
        "process peak RSS since start (ru_maxrss)",
    )
