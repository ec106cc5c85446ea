"""The table of a record: the update gate first, then time and memory."""

from typing import Any

from mixed_precision.gates import describe_comparison
from mixed_precision.runs import BASELINE, CANDIDATE, RUNS

HEADER = (
    *("scaler", "run", "dtype", "status", "applied", "back-offs", "scale", "grad norm", "probe change"),
    *("median ms", "P95 ms", "scaler ms", "peak MB"),
)
LEFT = 4  # columns of words, aligned to the left


def shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def make_row(metric: dict[str, Any]) -> tuple[str, ...]:
    return (
        metric["scaler"],
        metric["label"],
        metric["dtype"],
        metric["status"],
        f"{metric['successful_steps']}/{metric['attempted_steps']}",
        str(metric["scale_backoff_steps"]),
        f"{metric['scale_initial']:g} -> {metric['scale_after']:g}" if metric["scaler_enabled"] else "-",
        shown(metric["grad_norm"], ".4g"),
        shown(metric["parameter_delta_max"], ".3g"),
        shown(metric["step_median_ms"], ".2f"),
        shown(metric["step_p95_ms"], ".2f"),
        shown(metric["scaler_median_ms"], ".3f"),
        shown(metric["peak_allocated_mb"], ".0f"),
    )


def make_table(all_metrics: list[dict[str, Any]]) -> list[str]:
    rows = [HEADER, *(make_row(metrics[label]) for label in RUNS for metrics in all_metrics)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column < LEFT else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def ratio(metrics: dict[str, Any], key: str) -> str:
    candidate, baseline = metrics[CANDIDATE][key], metrics[BASELINE][key]
    return f"{candidate / baseline:.3f}" if candidate is not None and baseline else "-"


def describe_setting(record: dict[str, Any]) -> list[str]:
    model, workload, hardware, software = (record[key] for key in ("model", "workload", "hardware", "software"))
    commit = f" at {model['resolved_commit'][:12]}" if model["resolved_commit"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in software.items() if version)
    return [
        f"model     {model['id']}{commit}: {model['resolution_source']}, {model['parameters']:,} parameters; "
        f"tokenizer {model['tokenizer_class']} ({model['tokenizer_source']})",
        f"workload  batch {workload['batch_size']}, {workload['seq_len']} tokens, {workload['repeats']} steps measured "
        f"after {workload['warmup']}, seed {workload['seed']}, {record['evidence_level']}",
        f"machine   {hardware.get('gpu', hardware['cpu'])}, {hardware['cpu_threads']} CPU threads; {versions}",
    ]


def describe_gates(record: dict[str, Any]) -> list[str]:
    gates = record["gates"]
    passed = sum(gate["passed"] for gate in gates)
    lines = [f"update gate: {passed} of {len(gates)} hold, decision {record['decision']}"]
    return lines + [
        f"  failed: {gate['scaler']}: {gate['gate']}: {gate['found']}" for gate in gates if not gate["passed"]
    ]


def make_report(record: dict[str, Any]) -> str:
    all_metrics = [metrics for metrics in (record["torch_metrics"], record["metrics"]) if metrics]
    lines = [f"{record['semantic_id']} {record['run_label']}", *describe_setting(record), "", *describe_gates(record)]
    if record["comparison"]:
        lines.append(f"trajectories of torch and ampscaler: {describe_comparison(record['comparison'])}")
    lines += ["", *make_table(all_metrics), ""]
    for metrics in all_metrics:
        times, memory = ratio(metrics, "step_median_ms"), ratio(metrics, "peak_allocated_mb")
        name = metrics[CANDIDATE]["scaler"]
        lines.append(f"{name}: candidate / baseline: median time {times}, peak memory {memory}")
    candidate = record["metrics"][CANDIDATE]
    lines.append(f"times by {candidate['clock']}, of measured steps only; memory: {candidate['peak_memory_source']}")
    return "\n".join(lines)
