"""What the tests of the mixed-precision experiment share: its modules, short runs, the stored reference record.

Importing this file makes benchmarks/mixed_precision importable; tests take its modules from here.
"""

import copy
import functools
import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks/train_mixed_precision_backward.py"
sys.path.insert(0, str(ROOT / "benchmarks"))

from mixed_precision import (  # noqa: E402
    clock,
    command,
    compare,
    data,
    environment,
    errors,
    gates,
    hub,
    metrics,
    model,
    options,
    reading,
    record,
    runs,
    steps,
)

__all__ = ["clock", "compare", "data", "environment", "errors", "gates", "hub", "metrics", "model", "reading"]
__all__ += ["runs", "steps"]
RESULTS = options.RESULTS
parse_options = options.parse_options

REFERENCE = "cpu_reference"
SHORT = ["--run-mode", "real_cpu", "--repeats", "3", "--seq-len", "16"]


@functools.cache
def read_reference():
    return json.loads(record.record_path(RESULTS, REFERENCE).read_text())


def make_record():
    """An accepted record of both scalers, to be spoiled."""
    return copy.deepcopy(read_reference())


def run(folder, *arguments, label="test"):
    """The exit code of the command line, and the path where the record would be."""
    code = command.main([*arguments, "--run-label", label, "--output-dir", str(folder)])
    return code, record.record_path(folder, label)


def go_offline(monkeypatch, cache):
    """What HF_HUB_OFFLINE=1 and HF_HOME do; the client reads both once, when it is imported."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="transformers is not installed")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
