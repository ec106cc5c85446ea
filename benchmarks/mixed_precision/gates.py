"""The update gate: what must hold for the decision `accept`, judged from a record's own numbers.

Time and memory are never among it: a fast step that trains wrongly is worth nothing.
"""

from typing import Any

from mixed_precision.options import BACKOFF_FACTOR

FAILURE_TYPE = "training_update_gate_failed"
Verdict = tuple[str, bool, str]  # gate, whether it holds, what was found


def repeats_verdicts(label: str, metric: dict[str, Any], steps: int) -> list[Verdict]:
    """Gates of the baseline and of the candidate."""
    succeeded = metric["status"] == "measured" and metric["successful_steps"] == steps
    counts = f"{metric['status']}, {metric['successful_steps']} of {steps} steps applied"
    delta = metric["parameter_delta_max"]
    return [
        (f"{label}_steps_succeeded", succeeded, f"{counts} in {metric['attempted_steps']} attempts"),
        (f"{label}_norms_finite", metric["grad_is_finite"], f"last norm {metric['grad_norm']}"),
        (f"{label}_probe_changed", delta is not None and delta > 0, f"largest change {delta}"),
    ]


def overflow_verdicts(metric: dict[str, Any]) -> list[Verdict]:
    """Gates of the injected overflow; a run without scaling keeps its scale of 1."""
    skipped = not metric["step_applied"] and not metric["grad_is_finite"]
    expected = metric["scale_before"] * (BACKOFF_FACTOR if metric["scaler_enabled"] else 1)
    scale = f"scale {metric['scale_before']} -> {metric['scale_after']}, expected {expected}"
    recovery = metric["recovery"]
    recovered = recovery is not None and recovery["step_applied"] and recovery["grad_is_finite"]
    next_attempt = "missing"
    if recovery is not None:
        next_attempt = f"step_applied {recovery['step_applied']}, grad_is_finite {recovery['grad_is_finite']}"
    applied = f"step_applied {metric['step_applied']}, grad_is_finite {metric['grad_is_finite']}"
    return [
        ("overflow_skipped", skipped, applied),
        ("overflow_probe_bit_equal", metric["probe_bit_equal"], f"largest change {metric['parameter_delta_max']}"),
        ("overflow_scale_backed_off", metric["scale_after"] == expected, scale),
        ("overflow_recovered", recovered, f"the next finite attempt: {next_attempt}"),
    ]


def scaler_verdicts(metrics: dict[str, Any], steps: int) -> list[Verdict]:
    verdicts = repeats_verdicts("baseline", metrics["baseline"], steps)
    verdicts += repeats_verdicts("candidate", metrics["candidate"], steps)
    return verdicts + overflow_verdicts(metrics["overflow"])


def describe_comparison(comparison: dict[str, Any]) -> str:
    difference = comparison["first_difference"]
    if difference is None:
        return f"equal over {comparison['compared_attempts']} attempts"
    place = f"{difference['run']} run, attempt {difference['attempt']}"
    values = f"torch {difference['torch']}, ampscaler {difference['ampscaler']}"
    return f"first difference: {place}, {difference['quantity']}: {values}"


def evaluate(record: dict[str, Any]) -> list[dict[str, Any]]:
    """All gates of a record, in order."""
    steps = record["workload"]["warmup"] + record["workload"]["repeats"]
    gates = []
    for metrics in (record["torch_metrics"], record["metrics"]):
        for gate, passed, found in scaler_verdicts(metrics, steps) if metrics else []:
            name = metrics["candidate"]["scaler"]
            gates.append({"gate": gate, "scaler": name, "passed": passed, "found": found})
    if record["comparison"] is not None:
        comparison = record["comparison"]
        verdict = {"passed": comparison["equal"], "found": describe_comparison(comparison)}
        gates.append({"gate": "trajectories_equal", "scaler": "both", **verdict})
    return gates


def decide(gates: list[dict[str, Any]]) -> tuple[str, dict[str, str] | None]:
    """The decision and the failure."""
    failed = [f"{gate['scaler']}: {gate['gate']}: {gate['found']}" for gate in gates if not gate["passed"]]
    if not failed:
        return "accept", None
    return "reject", {"type": FAILURE_TYPE, "message": "; ".join(failed)}
