"""The mixed-precision experiment end to end on its tiny model: accepted, backed off, unstable, wrong, in bfloat16."""

import json

import pytest
import torch

from experiment_cases import SHORT, command, environment, go_offline, reading, record, run

RUNS = ("baseline", "candidate", "overflow")


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    go_offline(monkeypatch, tmp_path / "cache")


def finished(path):
    """The record of a run, which has to be strict JSON that follows the schema."""
    stored = json.loads(path.read_text(), parse_constant=reading.refuse_constant)
    record.check_schema(stored)
    return stored


def test_both_scalers_train_alike_and_are_accepted(tmp_path, capsys):
    threads = torch.get_num_threads()
    code, path = run(tmp_path, *SHORT, "--scaler", "both")
    stored = finished(path)
    assert (code, stored["decision"], stored["failure"]) == (0, "accept", None)
    assert stored["comparison"] == {"equal": True, "compared_attempts": 4 + 4 + 2, "first_difference": None}
    assert (stored["metrics"]["candidate"]["scaler"], stored["torch_metrics"]["candidate"]["scaler"]) == (
        "ampscaler",
        "torch",
    )
    for label in RUNS:
        assert stored["metrics"][label]["trajectory"] == stored["torch_metrics"][label]["trajectory"]
    printed = capsys.readouterr().out
    assert "update gate: 21 of 21 hold, decision accept" in printed
    assert "trajectories of torch and ampscaler: equal over 10 attempts" in printed
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == threads


def test_the_record_says_what_was_trained(tmp_path):
    _, path = run(tmp_path, *SHORT, "--scaler", "torch")
    stored = finished(path)
    assert stored["evidence_level"] == "tiny_model_mechanism_benchmark"
    assert stored["model"]["resolution_source"] == "tiny_initialisation"
    assert stored["model"]["tokenizer_source"] == "byte_level"
    assert stored["model"]["resolved_commit"] is None
    assert stored["workload"]["repeats"] == 3
    assert stored["workload"]["seed"] == 2026
    assert stored["torch_metrics"] is None
    assert stored["comparison"] is None
    assert [gate["scaler"] for gate in stored["gates"]] == ["torch"] * 10


def test_backed_off_attempts_are_counted_and_repeated_but_not_measured(tmp_path):
    code, path = run(tmp_path, *SHORT, "--scaler", "both", "--initial-scale", str(2.0**26))
    stored = finished(path)
    assert (code, stored["comparison"]["equal"]) == (0, True)
    candidate = stored["metrics"]["candidate"]
    skipped = candidate["scale_backoff_steps"]
    assert skipped >= 2
    assert candidate["attempted_steps"] == 4 + skipped
    assert (candidate["successful_steps"], candidate["measured_steps"]) == (4, 3)
    assert candidate["scale_after"] == 2.0**26 * 0.5**skipped
    trajectory = candidate["trajectory"]
    assert trajectory["applied"].count(False) == skipped
    # A skipped attempt leaves weights and batch as they are: the next one has the same loss.
    assert trajectory["loss"][0] == trajectory["loss"][1]
    assert trajectory["probe_sha256"][0] == trajectory["probe_sha256"][1]
    overflow = stored["metrics"]["overflow"]
    assert overflow["scale_before"] == candidate["scale_after"]
    assert overflow["scale_after"] == candidate["scale_after"] * 0.5


def test_a_run_that_never_stabilises_is_rejected_and_recorded(tmp_path, capsys):
    unstable = ["--initial-scale", "1e38", "--max-scale-backoff-steps", "1"]
    code, path = run(tmp_path, *SHORT, "--scaler", "ampscaler", *unstable)
    stored = finished(path)
    assert (code, stored["decision"]) == (1, "reject")
    candidate = stored["metrics"]["candidate"]
    assert candidate["status"] == "failed_to_stabilize"
    # The one that is allowed, and the one that was too many.
    assert (candidate["attempted_steps"], candidate["scale_backoff_steps"]) == (2, 2)
    assert candidate["successful_steps"] == 0
    assert candidate["step_median_ms"] is None
    assert candidate["grad_norm"] is None
    assert stored["metrics"]["baseline"]["status"] == "measured"
    assert stored["failure"]["type"] == "training_update_gate_failed"
    expected = "ampscaler: candidate_steps_succeeded: failed_to_stabilize, 0 of 4 steps applied in 2 attempts"
    assert expected in stored["failure"]["message"]
    assert f"failed: {expected}" in capsys.readouterr().out


def test_bfloat16_runs_without_scaling_and_still_skips_the_overflow(tmp_path):
    code, path = run(tmp_path, *SHORT, "--scaler", "both", "--candidate-dtype", "bfloat16")
    stored = finished(path)
    assert (code, stored["decision"]) == (0, "accept")
    candidate, overflow = stored["metrics"]["candidate"], stored["metrics"]["overflow"]
    assert (candidate["dtype"], candidate["scaler_enabled"], candidate["scale_after"]) == ("bfloat16", False, 1.0)
    assert (overflow["step_applied"], overflow["probe_bit_equal"], overflow["scale_after"]) == (False, True, 1.0)
    assert overflow["recovery"]["step_applied"] is True


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_on_a_gpu_time_is_of_events_and_memory_of_the_allocator(tmp_path, dtype):
    arguments = ["--run-mode", "real_gpu", "--model", "tiny", "--repeats", "3", "--candidate-dtype", dtype]
    code, path = run(tmp_path, *arguments, "--scaler", "both")
    stored = finished(path)
    assert (code, stored["failure"]) == (0, None)
    assert stored["hardware"]["gpu"] == torch.cuda.get_device_name()
    for metric in stored["metrics"].values():
        assert metric["clock"] == "torch.cuda.Event"
        assert metric["peak_memory_source"] == "torch.cuda.max_memory_allocated"


class HalvesTwice(torch.amp.GradScaler):
    """A scaler that is wrong in its second update."""

    def update(self, new_scale=None):
        super().update(new_scale)
        self.updates = getattr(self, "updates", 0) + 1
        if self.is_enabled() and self.updates == 2:
            self._scale.mul_(0.5)


def test_a_scaler_that_goes_another_way_is_rejected_with_the_first_difference(tmp_path, monkeypatch):
    classes = {"torch": torch.amp.GradScaler, "ampscaler": HalvesTwice}
    monkeypatch.setattr(environment, "scaler_class", classes.get)
    code, path = run(tmp_path, *SHORT, "--scaler", "both")
    stored = finished(path)
    assert (code, stored["decision"]) == (1, "reject")
    difference = stored["comparison"]["first_difference"]
    place = {"run": "candidate", "attempt": 2, "quantity": "scale_after"}
    assert difference == place | {"torch": 65536.0, "ampscaler": 32768.0}
    assert [gate["gate"] for gate in stored["gates"] if not gate["passed"]] == ["trajectories_equal"]


class StepsAnyway(torch.amp.GradScaler):
    """A scaler without a skip."""

    def _maybe_opt_step(self, optimizer, optimizer_state, *args, **kwargs):
        return optimizer.step(*args, **kwargs)


def test_nan_of_a_scaler_that_steps_anyway_fails_gates_and_is_null_in_the_record(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "scaler_class", {"ampscaler": StepsAnyway}.get)
    code, path = run(tmp_path, *SHORT)
    stored = finished(path)
    assert (code, stored["decision"]) == (1, "reject")
    overflow = stored["metrics"]["overflow"]
    assert (overflow["step_applied"], overflow["probe_bit_equal"]) == (True, False)
    assert overflow["parameter_delta_max"] is None
    assert overflow["recovery"]["grad_norm"] is None
    failed = [gate["gate"] for gate in stored["gates"] if not gate["passed"]]
    assert failed == ["overflow_skipped", "overflow_probe_bit_equal", "overflow_recovered"]


def test_a_dry_run_loads_no_weights_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "load_model", lambda *_: pytest.fail("a dry run loads no model"))
    code, path = run(tmp_path / "new", "--scaler", "both")
    assert code == 0
    assert not path.parent.exists()
    printed = capsys.readouterr().out
    assert "scalers    torch.GradScaler, ampscaler.GradScaler\n" in printed
    assert "real_cpu   tiny configuration of the Qwen/Qwen2.5-0.5B architecture, random weights\n" in printed
    assert "checkpoint Qwen/Qwen2.5-0.5B: not in the cache, and the hub: " in printed
    assert f"record     {path}\n" in printed
