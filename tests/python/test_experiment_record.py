"""The record of the experiment: the stored reference, strict JSON, the schema, and broken records for --read."""

import hashlib
import json

import pytest

from experiment_cases import REFERENCE, RESULTS, ROOT, command, errors, make_record, record

PREFIX = "train_mixed_precision_backward: "
TOP = [
    "schema_version",
    "semantic_id",
    "profile_id",
    "run_label",
    "model",
    "workload",
    "hardware",
    "metrics",
    "failure",
]
TOP += ["evidence_level", "decision"]
METRIC = ["label", "dtype", "status", "step_median_ms", "step_p95_ms", "peak_allocated_mb", "grad_norm"]
METRIC += ["grad_is_finite", "probe_parameter", "parameter_delta_max", "scale_initial", "scale_before", "scale_after"]
METRIC += ["scale_backoff_steps", "attempted_steps", "successful_steps", "step_applied"]


def read(folder, label, capsys):
    """Exit code, stdout and stderr of --read, which changes no file."""
    path = record.record_path(folder, label)
    before = hashlib.sha256(path.read_bytes()).digest() if path.exists() else None
    code = command.main(["--read", label, "--output-dir", str(folder)])
    after = hashlib.sha256(path.read_bytes()).digest() if path.exists() else None
    assert before == after
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_reference_is_an_accepted_run_of_both_scalers(capsys):
    code, out, err = read(RESULTS, REFERENCE, capsys)
    assert (code, err) == (0, "")
    assert "update gate: 21 of 21 hold, decision accept" in out
    assert "trajectories of torch and ampscaler: equal over 44 attempts" in out
    rows = [line.split()[:2] for line in out.splitlines() if line.startswith(("torch  ", "ampscaler  "))]
    assert rows == [[name, run] for run in ("baseline", "candidate", "overflow") for name in ("torch", "ampscaler")]


def test_the_reference_has_the_defaults_and_names_no_machine():
    reference = make_record()
    assert reference["schema_version"] == "training-mechanism-gpu/v3"
    assert reference["semantic_id"] == "TRAIN-AMP-BACKWARD"
    assert reference["profile_id"] == "TRAIN-CUDA-MECHANISM"
    assert reference["workload"]["initial_scale"] == 65536
    assert reference["workload"]["repeats"] == 20
    for name in ("commit", "torch", "transformers"):
        assert reference["software"][name]
    assert reference["hardware"]["cpu"]
    assert set(reference["hardware"]) == {"device", "cpu", "cpu_threads"}
    assert set(reference["software"]) == {"commit", "python", "torch", "transformers", "ampscaler"}
    assert str(ROOT) not in record.record_path(RESULTS, REFERENCE).read_text()


def test_a_record_survives_its_text():
    reference = make_record()
    text = record.to_json(reference)
    assert json.loads(text) == reference
    assert text == record.record_path(RESULTS, REFERENCE).read_text()
    assert '"scale": [1.0, 1.0,' in text


def test_texts_with_brackets_and_line_breaks_survive():
    odd = {"prompts": ["a]\n  [b", "\\n  ", "[\n  1\n]"], "empty": [], "nested": [[1, 2], [3]]}
    assert json.loads(record.to_json(odd)) == odd


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_never_becomes_text(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        record.to_json({"value": value})


def test_the_schema_asks_for_every_key():
    record.check_schema(make_record())
    for name in TOP:
        spoilt = make_record()
        del spoilt[name]
        with pytest.raises(errors.BrokenRecordError, match=f"'{name}' is a required property"):
            record.check_schema(spoilt)
    for run in ("baseline", "candidate", "overflow"):
        for name in METRIC:
            spoilt = make_record()
            del spoilt["metrics"][run][name]
            with pytest.raises(errors.BrokenRecordError, match=f"metrics/{run}: '{name}' is a required property"):
                record.check_schema(spoilt)


def test_further_keys_are_allowed():
    wider = make_record()
    wider["note"] = wider["metrics"]["candidate"]["note"] = "more"
    record.check_schema(wider)


def without_metric(stored):
    del stored["metrics"]["candidate"]["grad_norm"]


def with_a_text_for_a_number(stored):
    stored["metrics"]["baseline"]["step_median_ms"] = "fast"


def of_another_version(stored):
    stored["schema_version"] = "training-mechanism-gpu/v2"


def accepted_with_a_failed_gate(stored):
    stored["gates"][0]["passed"] = False


def accepted_with_a_failure(stored):
    stored["failure"] = {"type": "training_update_gate_failed", "message": "?"}


def accepted_against_its_numbers(stored):
    stored["metrics"]["candidate"]["successful_steps"] = 20


def without_comparison(stored):
    stored["comparison"] = None


def of_another_label(stored):
    stored["run_label"] = "elsewhere"


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (without_metric, "metrics/candidate: 'grad_norm' is a required property"),
        (with_a_text_for_a_number, "metrics/baseline/step_median_ms: 'fast' is not of type 'number', 'null'"),
        (of_another_version, "schema_version: 'training-mechanism-gpu/v3' was expected"),
        (accepted_with_a_failed_gate, "gates/0/passed: True was expected"),
        (
            accepted_with_a_failure,
            "failure: {'type': 'training_update_gate_failed', 'message': '?'} is not of type 'null'",
        ),
        (accepted_against_its_numbers, "decision: the record's numbers give reject, got accept"),
        (without_comparison, "comparison: None is not of type 'object'"),
        (of_another_label, "run_label: expected 'broken', got 'elsewhere'"),
    ],
)
def test_a_record_that_is_not_whole_gives_5(spoil, error, tmp_path, capsys):
    stored = make_record() | {"run_label": "broken"}
    spoil(stored)
    path = record.record_path(tmp_path, "broken")
    path.write_text(json.dumps(stored))
    assert read(tmp_path, "broken", capsys) == (5, "", f"{PREFIX}--read broken: {path}: {error}\n")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "expected strict JSON: Expecting value: line 1 column 1 (char 0)"),
        (b'{"metrics": {', "expected strict JSON: Expecting property name"),
        (b'{"value": NaN}', "expected strict JSON: NaN is no JSON"),
        (b'{"value": -Infinity}', "expected strict JSON: -Infinity is no JSON"),
        (b"\xff\xfe", "expected strict JSON: 'utf-8' codec can't decode"),
        (b"[" * 100_000, "expected strict JSON: maximum recursion depth exceeded"),
        (b"[]", "the record: [] is not of type 'object'"),
        (b"{}", "the record: 'schema_version' is a required property"),
    ],
    ids=["empty", "cut", "nan", "infinity", "binary", "deep", "list", "nothing"],
)
def test_a_file_that_is_no_record_gives_5(content, error, tmp_path, capsys):
    path = record.record_path(tmp_path, "broken")
    path.write_bytes(content)
    code, out, err = read(tmp_path, "broken", capsys)
    assert (code, out) == (5, "")
    assert err.startswith(f"{PREFIX}--read broken: {path}: {error}")
    assert err.count("\n") == 1


def test_a_record_that_is_not_there_gives_5(tmp_path, capsys):
    path = record.record_path(tmp_path, "missing")
    assert read(tmp_path, "missing", capsys) == (5, "", f"{PREFIX}--read missing: there is no {path}\n")
    path.mkdir()
    assert command.main(["--read", "missing", "--output-dir", str(tmp_path)]) == 5
    assert "Is a directory" in capsys.readouterr().err


def test_reading_a_rejected_record_is_no_failure_of_the_reader(tmp_path, capsys):
    stored = make_record() | {"run_label": "rejected"}
    stored["metrics"]["overflow"]["scale_after"] = 65536.0
    stored["gates"] = record.gates.evaluate(stored)
    stored["decision"], stored["failure"] = record.gates.decide(stored["gates"])
    record.record_path(tmp_path, "rejected").write_text(record.to_json(stored))
    code, out, _ = read(tmp_path, "rejected", capsys)
    assert code == 0
    assert "update gate: 20 of 21 hold, decision reject" in out
    assert "failed: ampscaler: overflow_scale_backed_off: scale 65536.0 -> 65536.0, expected 32768.0" in out
