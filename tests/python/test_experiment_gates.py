"""The experiment's judgement: every gate can fail, time and memory never decide, differences and times by hand."""

import dataclasses
import math

import pytest

from experiment_cases import compare, gates, make_record, metrics, parse_options, runs, steps

INF = float("inf")
NAN = float("nan")
ATTEMPT = steps.Attempt(
    loss=2.0,
    grad_norm=3.0,
    applied=True,
    scale_before=8.0,
    scale_after=8.0,
    probe_sha256="a" * 64,
    step_ms=10.0,
    scaler_ms=1.0,
)
SKIPPED = dataclasses.replace(ATTEMPT, applied=False, grad_norm=INF, scale_after=4.0, step_ms=1e9, scaler_ms=1e9)


def failed_gates(stored):
    return [(gate["scaler"], gate["gate"]) for gate in gates.evaluate(stored) if not gate["passed"]]


def test_the_reference_holds_every_gate():
    evaluated = gates.evaluate(make_record())
    assert len(evaluated) == 2 * 10 + 1
    assert gates.decide(evaluated) == ("accept", None)


@pytest.mark.parametrize("of", ["metrics", "torch_metrics"])
@pytest.mark.parametrize(
    ("run", "changes", "gate"),
    [
        ("baseline", {"successful_steps": 20}, "baseline_steps_succeeded"),
        ("baseline", {"status": "failed_to_stabilize"}, "baseline_steps_succeeded"),
        ("baseline", {"grad_is_finite": False}, "baseline_norms_finite"),
        ("baseline", {"parameter_delta_max": 0.0}, "baseline_probe_changed"),
        ("baseline", {"parameter_delta_max": None}, "baseline_probe_changed"),
        ("candidate", {"successful_steps": 20}, "candidate_steps_succeeded"),
        ("candidate", {"status": "failed_to_stabilize"}, "candidate_steps_succeeded"),
        ("candidate", {"grad_is_finite": False}, "candidate_norms_finite"),
        ("candidate", {"parameter_delta_max": 0.0}, "candidate_probe_changed"),
        ("overflow", {"step_applied": True}, "overflow_skipped"),
        ("overflow", {"grad_is_finite": True}, "overflow_skipped"),
        ("overflow", {"probe_bit_equal": False}, "overflow_probe_bit_equal"),
        ("overflow", {"scale_after": 65536.0}, "overflow_scale_backed_off"),
        ("overflow", {"scale_after": 16384.0}, "overflow_scale_backed_off"),
        ("overflow", {"recovery": None}, "overflow_recovered"),
        ("overflow", {"recovery": {"step_applied": False, "grad_is_finite": True}}, "overflow_recovered"),
        ("overflow", {"recovery": {"step_applied": True, "grad_is_finite": False}}, "overflow_recovered"),
    ],
)
def test_each_gate_fails_on_its_own(of, run, changes, gate):
    stored = make_record()
    stored[of][run].update(changes)
    scaler = "ampscaler" if of == "metrics" else "torch"
    assert failed_gates(stored) == [(scaler, gate)]
    decision, failure = gates.decide(gates.evaluate(stored))
    assert decision == "reject"
    assert failure["type"] == "training_update_gate_failed"
    assert failure["message"].startswith(f"{scaler}: {gate}: ")


def test_unequal_trajectories_fail_the_last_gate():
    stored = make_record()
    difference = {"run": "candidate", "attempt": 3, "quantity": "loss", "torch": 1.5, "ampscaler": None}
    stored["comparison"] = {"equal": False, "compared_attempts": 44, "first_difference": difference}
    assert failed_gates(stored) == [("both", "trajectories_equal")]
    _, failure = gates.decide(gates.evaluate(stored))
    expected = "first difference: candidate run, attempt 3, loss: torch 1.5, ampscaler None"
    assert failure["message"] == f"both: trajectories_equal: {expected}"


def test_time_and_memory_are_no_gates():
    stored = make_record()
    for metric in stored["metrics"].values():
        metric |= {"step_median_ms": 1e9, "step_p95_ms": 1e9, "scaler_median_ms": 1e9, "peak_allocated_mb": 1e9}
    assert failed_gates(stored) == []


def test_a_run_without_scaling_keeps_its_scale():
    stored = make_record()
    overflow = stored["metrics"]["overflow"]
    overflow |= {"scaler_enabled": False, "scale_before": 1.0, "scale_after": 1.0}
    assert failed_gates(stored) == []
    overflow["scale_after"] = 0.5
    assert failed_gates(stored) == [("ampscaler", "overflow_scale_backed_off")]


def make_run(attempts, label="candidate", recovery=None):
    return runs.Run(
        label=label,
        scaler="torch",
        dtype="float16",
        attempts=attempts,
        stable=True,
        scaling=True,
        probe_name="0.self_attn.q_proj.weight",
        probe_delta=0.5,
        probe_bit_equal=False,
        peak_mb=1.0,
        memory_source="?",
        clock="time.perf_counter",
        recovery=recovery,
    )


def make_runs(candidate):
    overflow = make_run([SKIPPED], "overflow", recovery=ATTEMPT)
    return {"baseline": make_run([ATTEMPT], "baseline"), "candidate": make_run(candidate), "overflow": overflow}


@pytest.mark.parametrize(
    ("changes", "quantity", "values"),
    [
        ({"loss": math.nextafter(2.0, 3.0)}, "loss", (2.0, math.nextafter(2.0, 3.0))),
        ({"loss": NAN}, "loss", (2.0, None)),
        ({"scale_after": 4.0}, "scale_after", (8.0, 4.0)),
        ({"applied": False}, "applied", (True, False)),
        ({"probe_sha256": "b" * 64}, "probe_sha256", ("a" * 64, "b" * 64)),
        ({"scale_after": 4.0, "probe_sha256": "b" * 64}, "scale_after", (8.0, 4.0)),
    ],
)
def test_the_first_difference_is_named(changes, quantity, values):
    other = dataclasses.replace(ATTEMPT, **changes)
    compared = compare.compare(make_runs([ATTEMPT] * 4), make_runs([ATTEMPT, ATTEMPT, other, SKIPPED]))
    assert compared["equal"] is False
    difference = {"run": "candidate", "attempt": 3, "quantity": quantity, "torch": values[0], "ampscaler": values[1]}
    assert compared["first_difference"] == difference


def test_another_number_of_attempts_is_a_difference():
    compared = compare.compare(make_runs([ATTEMPT] * 3), make_runs([ATTEMPT] * 2))
    difference = {"run": "candidate", "attempt": 3, "quantity": "attempts", "torch": 3, "ampscaler": 2}
    assert compared["first_difference"] == difference


def test_the_attempt_after_the_overflow_is_compared_too():
    others = make_runs([ATTEMPT])
    others["overflow"] = make_run([SKIPPED], "overflow", recovery=SKIPPED)
    assert compare.compare(make_runs([ATTEMPT]), others)["first_difference"]["attempt"] == 2


def test_times_are_no_difference_and_nan_equals_nan():
    lost = dataclasses.replace(ATTEMPT, loss=NAN)
    slow = dataclasses.replace(lost, step_ms=99.0, scaler_ms=98.0)
    equal = {"equal": True, "compared_attempts": 1 + 2 + 2, "first_difference": None}
    assert compare.compare(make_runs([ATTEMPT, lost]), make_runs([ATTEMPT, slow])) == equal


def test_times_leave_out_warm_up_and_skipped_attempts():
    options = parse_options(["--warmup", "1", "--repeats", "20"])
    applied = [dataclasses.replace(ATTEMPT, step_ms=float(number), scaler_ms=number / 10) for number in range(21)]
    attempts = [SKIPPED, dataclasses.replace(applied[0], step_ms=1e9), SKIPPED, *applied[1:]]
    described = metrics.describe_run(make_run(attempts), options)
    assert described["measured_steps"] == 20
    # Of 1 ... 20: the middle, and the nineteenth, which 95 % do not exceed.
    assert (described["step_median_ms"], described["step_p95_ms"]) == (10.5, 19.0)
    assert (described["scaler_median_ms"], described["scaler_p95_ms"]) == (1.05, 1.9)
    assert (described["attempted_steps"], described["successful_steps"]) == (23, 21)
    assert described["scale_backoff_steps"] == 2


def test_a_run_that_applied_nothing_has_no_time_and_no_norm():
    described = metrics.describe_run(make_run([SKIPPED, SKIPPED]), parse_options([]))
    assert described["step_median_ms"] is None
    assert described["step_p95_ms"] is None
    assert (described["grad_norm"], described["grad_is_finite"]) == (None, False)


def test_one_norm_that_is_not_finite_spoils_an_applied_run():
    lost = dataclasses.replace(ATTEMPT, grad_norm=INF)
    described = metrics.describe_run(make_run([lost, ATTEMPT]), parse_options([]))
    assert (described["grad_norm"], described["grad_is_finite"]) == (3.0, False)
