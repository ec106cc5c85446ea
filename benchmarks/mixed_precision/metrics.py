"""What a record says about one run: counts, times of the measured steps, norm, probe parameter, scale, trajectory.

Times come from measured steps only: attempts that were skipped, and warm-up, are never among them.
"""

import math
import statistics
from typing import Any

from mixed_precision.options import Options
from mixed_precision.runs import OVERFLOW, Run
from mixed_precision.steps import Attempt


def finite_or_none(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else None


def median(values: list[float]) -> float | None:
    return round(statistics.median(values), 4) if values else None


def p95(values: list[float]) -> float | None:
    """The nearest rank: the smallest value that 95 % of the values do not exceed."""
    return round(sorted(values)[math.ceil(0.95 * len(values)) - 1], 4) if values else None


def measured_attempts(run: Run, options: Options) -> list[Attempt]:
    if run.label == OVERFLOW:
        return []
    return [attempt for attempt in run.attempts if attempt.applied][options.warmup :]


def describe_trajectory(attempts: list[Attempt]) -> dict[str, list[Any]]:
    return {
        "loss": [finite_or_none(attempt.loss) for attempt in attempts],
        "scale": [attempt.scale_after for attempt in attempts],
        "applied": [attempt.applied for attempt in attempts],
        "probe_sha256": [attempt.probe_sha256[:16] for attempt in attempts],
    }


def describe_recovery(attempt: Attempt | None) -> dict[str, Any] | None:
    if attempt is None:
        return None
    return {
        "step_applied": attempt.applied,
        "grad_norm": finite_or_none(attempt.grad_norm),
        "grad_is_finite": math.isfinite(attempt.grad_norm),
        "scale_before": attempt.scale_before,
        "scale_after": attempt.scale_after,
    }


def describe_times(run: Run, options: Options) -> dict[str, Any]:
    measured = measured_attempts(run, options)
    steps = [attempt.step_ms for attempt in measured]
    scaler_parts = [attempt.scaler_ms for attempt in measured]
    return {
        "measured_steps": len(measured),
        "step_median_ms": median(steps),
        "step_p95_ms": p95(steps),
        "scaler_median_ms": median(scaler_parts),
        "scaler_p95_ms": p95(scaler_parts),
        "clock": run.clock,
    }


def describe_run(run: Run, options: Options) -> dict[str, Any]:
    """The norm is the last applied step's; of a run that applied none, the last attempt's."""
    applied = [attempt for attempt in run.attempts if attempt.applied]
    decisive = applied or run.attempts[-1:]
    last = run.attempts[-1]
    skipped = len(run.attempts) - len(applied)
    return {
        "label": run.label,
        "scaler": run.scaler,
        "dtype": run.dtype,
        "status": "measured" if run.stable else "failed_to_stabilize",
        **describe_times(run, options),
        "peak_allocated_mb": round(run.peak_mb, 2),
        "peak_memory_source": run.memory_source,
        "grad_norm": finite_or_none(decisive[-1].grad_norm),
        "grad_is_finite": all(math.isfinite(attempt.grad_norm) for attempt in decisive),
        "probe_parameter": run.probe_name,
        "probe_bit_equal": run.probe_bit_equal,
        "parameter_delta_max": finite_or_none(run.probe_delta),
        "scaler_enabled": run.scaling,
        "scale_initial": run.attempts[0].scale_before,
        "scale_before": last.scale_before,
        "scale_after": last.scale_after,
        "scale_backoff_steps": skipped if run.scaling else 0,
        "attempted_steps": len(run.attempts),
        "successful_steps": len(applied),
        "step_applied": last.applied,
        "recovery": describe_recovery(run.recovery),
        "trajectory": describe_trajectory(run.trajectory),
    }
