"""A stored record, read back with suspicion: strict JSON, of the schema, and in agreement with itself.

Everything that is printed of a record is derived from its numbers again, and must be what the record says.
"""

import json
import math
import pathlib
import unicodedata
from typing import Any

from mixed_precision import gates
from mixed_precision.errors import BrokenRecordError
from mixed_precision.model import EVIDENCE
from mixed_precision.record import check_schema, record_path
from mixed_precision.runs import RUNS

MOST = 2**63
EVIDENCE_OF_SOURCE = {"tiny_initialisation": EVIDENCE["tiny"], "random_initialisation": EVIDENCE["random"]}


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is beyond a float64")
    return value


def bounded_int(text: str) -> int:
    value = int(text) if len(text) < 25 else MOST
    if abs(value) >= MOST:
        raise ValueError("a whole number is beyond 64 bits")
    return value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def check_text(value: Any) -> None:
    """A record is printed: none of its strings may forge a line or steer a terminal."""
    if isinstance(value, dict):
        for part in (*value, *value.values()):
            check_text(part)
    elif isinstance(value, list):
        for part in value:
            check_text(part)
    elif isinstance(value, str) and any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        raise ValueError(f"control characters in {value!r}")


def expect(name: str, expected: Any, got: Any) -> None:
    if expected != got:
        raise BrokenRecordError(f"{name}: the record's numbers give {expected}, got {got}")


def check_metric(name: str, metric: dict[str, Any], scaler: str, dtype: str) -> None:
    expect(f"{name}/scaler", scaler, metric["scaler"])
    expect(f"{name}/dtype", dtype, metric["dtype"])
    attempts = metric["attempted_steps"]
    length = attempts + (metric["recovery"] is not None)
    for quantity, values in metric["trajectory"].items():
        expect(f"{name}/trajectory/{quantity}: number of attempts", length, len(values))
    applied = metric["trajectory"]["applied"][:attempts]
    expect(f"{name}/successful_steps", sum(applied), metric["successful_steps"])
    expect(f"{name}/step_applied", bool(applied) and applied[-1], metric["step_applied"])
    expect(f"{name}/grad_is_finite without a norm", False, metric["step_applied"] and metric["grad_norm"] is None)


def check_metrics(record: dict[str, Any]) -> None:
    workload = record["workload"]
    both = workload["scaler"] == "both"
    scalers = {"metrics": "ampscaler" if both else workload["scaler"]}
    if both:
        scalers["torch_metrics"] = "torch"
    for key, scaler in scalers.items():
        for run in RUNS:
            dtype = "float32" if run == "baseline" else workload["candidate_dtype"]
            check_metric(f"{key}/{run}", record[key][run], scaler, dtype)
    initial = workload["initial_scale"] if record["metrics"]["candidate"]["scaler_enabled"] else 1.0
    expect("metrics/candidate/scale_initial", initial, record["metrics"]["candidate"]["scale_initial"])


def check_comparison(record: dict[str, Any]) -> None:
    comparison = record["comparison"]
    expect("comparison: present", record["workload"]["scaler"] == "both", comparison is not None)
    expect("torch_metrics: present", comparison is not None, record["torch_metrics"] is not None)
    if comparison is None:
        return
    torchs, ours = ([record[key][run]["trajectory"] for run in RUNS] for key in ("torch_metrics", "metrics"))
    expect("comparison/compared_attempts", sum(len(run["loss"]) for run in torchs), comparison["compared_attempts"])
    expect("comparison/first_difference: present", not comparison["equal"], comparison["first_difference"] is not None)
    if torchs != ours:  # where they are equal here, NaNs, which are null here, may still have differed
        expect("comparison/equal", False, comparison["equal"])


def check_consistency(record: dict[str, Any], label: str) -> None:
    if record["run_label"] != label:
        raise BrokenRecordError(f"run_label: expected {label!r}, got {record['run_label']!r}")
    verdicts = gates.evaluate(record)
    decision, failure = gates.decide(verdicts)
    expect("decision", decision, record["decision"])
    expect("failure", failure, record["failure"])
    expect("gates", verdicts, record["gates"])
    source = record["model"]["resolution_source"]
    expect("evidence_level", EVIDENCE_OF_SOURCE.get(source, EVIDENCE["checkpoint"]), record["evidence_level"])
    check_comparison(record)
    check_metrics(record)


def parse(text: str) -> Any:
    record = json.loads(
        text,
        parse_constant=refuse_constant,
        parse_float=finite_float,
        parse_int=bounded_int,
        object_pairs_hook=unique_keys,
    )
    check_text(record)
    return record


def read(folder: pathlib.Path, label: str) -> dict[str, Any]:
    """A stored record, if it is whole."""
    path = record_path(folder, label)
    try:
        record = parse(path.read_text(encoding="utf-8"))
        check_schema(record)
        check_consistency(record, label)
    except FileNotFoundError as error:
        raise BrokenRecordError(f"--read {label}: there is no {path}") from error
    except OSError as error:
        raise BrokenRecordError(f"--read {label}: {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BrokenRecordError(f"--read {label}: {path}: expected strict JSON: {error}") from error
    except BrokenRecordError as error:
        raise BrokenRecordError(f"--read {label}: {path}: {error}") from error
    return record
