"""The record of an experiment: assembled, checked against schema.json, written once. reading.py takes it back.

A record is strict JSON and appears under its name complete or not at all.
"""

import json
import os
import pathlib
import re
import tempfile
from typing import Any

from mixed_precision import compare, gates, metrics
from mixed_precision.data import PROMPTS
from mixed_precision.environment import describe_hardware, describe_software
from mixed_precision.errors import BrokenRecordError, ConfigurationError, LabelExistsError
from mixed_precision.model import EVIDENCE, LoadedModel
from mixed_precision.options import BACKOFF_FACTOR, GROWTH_INTERVAL, Options
from mixed_precision.runs import Bench, Run

SCHEMA = pathlib.Path(__file__).with_name("schema.json")
SCHEMA_VERSION = "training-mechanism-gpu/v3"
SEMANTIC_ID = "TRAIN-AMP-BACKWARD"


def record_path(folder: pathlib.Path, label: str) -> pathlib.Path:
    return folder / f"train-amp-backward_{label}.json"


def check_output(options: Options) -> pathlib.Path:
    """The path of the record, if it may be written. Writes nothing."""
    path = record_path(options.output_dir, options.run_label)
    if os.path.lexists(path) and not options.overwrite:
        raise LabelExistsError(f"--run-label {options.run_label}: {path} exists; choose another label, or --overwrite")
    folder = options.output_dir
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigurationError(f"--output-dir {options.output_dir}: expected a folder that can be written")
    return path


def check_folder(options: Options) -> None:
    """Makes the folder and a file in it, as the record will: a run may take hours before it is written."""
    try:
        options.output_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.output_dir):
            pass
    except OSError as error:
        raise ConfigurationError(f"--output-dir {options.output_dir}: {error.strerror}") from error


def describe_workload(options: Options) -> dict[str, Any]:
    names = ("candidate_dtype", "batch_size", "seq_len", "repeats", "warmup", "learning_rate", "max_norm")
    workload = {name: getattr(options, name) for name in (*names, "initial_scale", "max_scale_backoff_steps", "seed")}
    constants = {"backoff_factor": BACKOFF_FACTOR, "growth_interval": GROWTH_INTERVAL}
    return workload | constants | {"run_mode": options.run_mode, "scaler": options.scaler, "prompts": list(PROMPTS)}


def assemble(options: Options, model: LoadedModel, bench: Bench, runs: dict[str, dict[str, Run]]) -> dict[str, Any]:
    """With both scalers, `metrics` is ampscaler's and `torch_metrics` is torch's."""
    described = {
        name: {label: metrics.describe_run(run, options) for label, run in of_scaler.items()}
        for name, of_scaler in runs.items()
    }
    both = len(runs) == 2
    record = {
        "schema_version": SCHEMA_VERSION,
        "semantic_id": SEMANTIC_ID,
        "profile_id": options.profile_id,
        "run_label": options.run_label,
        "evidence_level": EVIDENCE[model.kind],
        "model": model.record,
        "workload": describe_workload(options),
        "hardware": describe_hardware(bench.device),
        "software": describe_software(options),
        "metrics": described[options.scalers[-1]],
        "torch_metrics": described["torch"] if both else None,
        "comparison": compare.compare(runs["torch"], runs["ampscaler"]) if both else None,
    }
    record["gates"] = gates.evaluate(record)
    record["decision"], record["failure"] = gates.decide(record["gates"])
    return record


def join_lines(found: re.Match[str]) -> str:
    """A list of plain values; a line break inside a string would be written as an escape."""
    return "[" + " ".join(line.strip() for line in found[0].strip("[]").strip().splitlines()) + "]"


def to_json(record: dict[str, Any]) -> str:
    """Strict JSON, with a list of plain values on one line."""
    text = json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False)
    return re.sub(r"\[\n[^\[\]{}]*?\n\s+\]", join_lines, text) + "\n"


def check_schema(record: Any) -> None:
    """Raises BrokenRecordError with the first thing that is wrong."""
    import jsonschema

    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    error = jsonschema.exceptions.best_match(validator.iter_errors(record))
    if error is not None:
        place = "/".join(str(part) for part in error.absolute_path) or "the record"
        raise BrokenRecordError(f"{place}: {' '.join(error.message.split())[:200]}")


def place(complete: pathlib.Path, path: pathlib.Path) -> None:
    """Unlike a rename, refuses to replace a file that appeared meanwhile."""
    try:
        os.link(complete, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with path.open("x", encoding="utf-8") as file:
            file.write(complete.read_text(encoding="utf-8"))


def write(record: dict[str, Any], options: Options) -> pathlib.Path:
    check_schema(record)
    text = to_json(record)
    path = record_path(options.output_dir, options.run_label)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".record-") as folder:
            complete = pathlib.Path(folder) / path.name
            complete.write_text(text, encoding="utf-8")
            if options.overwrite:
                complete.replace(path)
            else:
                place(complete, path)
    except FileExistsError as error:
        raise LabelExistsError(f"--run-label {options.run_label}: {path} appeared during the run") from error
    except OSError as error:
        raise ConfigurationError(f"--output-dir {options.output_dir}: {error.strerror}") from error
    return path
