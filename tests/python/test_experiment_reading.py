"""--read of records that contradict themselves: whatever was changed in a whole one, code 5 and one line about it."""

import copy
import json

import pytest

from experiment_cases import REFERENCE, RESULTS, errors, reading, record

WHOLE = json.loads(record.record_path(RESULTS, REFERENCE).read_text())


def message_of(folder, text):
    record.record_path(folder, REFERENCE).write_text(text, encoding="utf-8")
    with pytest.raises(errors.BrokenRecordError) as caught:
        reading.read(folder, REFERENCE)
    assert caught.value.exit_code == 5
    assert "\n" not in str(caught.value)
    return str(caught.value)


def doctored(path, value):
    """The reference record with the entry at `path` replaced."""
    result = copy.deepcopy(WHOLE)
    *parents, last = path
    place = result
    for key in parents:
        place = place[key]
    place[last] = value
    return json.dumps(result)


CANDIDATE = ("metrics", "candidate")
CONTRADICTIONS = [
    (("gates",), WHOLE["gates"][:1], "gates"),
    (("gates", 0, "found"), "lies", "gates"),
    ((*CANDIDATE, "trajectory", "loss"), [1.0, 2.0], "comparison/equal"),
    ((*CANDIDATE, "trajectory", "applied"), [False] * 21, "comparison/equal"),
    ((*CANDIDATE, "attempted_steps"), 22, "gates"),
    ((*CANDIDATE, "dtype"), "float32", "metrics/candidate/dtype"),
    ((*CANDIDATE, "grad_norm"), None, "gates"),
    (("workload", "initial_scale"), 1024.0, "metrics/candidate/scale_initial"),
    (("evidence_level",), "real_model_mechanism_benchmark", "evidence_level"),
    (("comparison", "compared_attempts"), 43, "gates"),
]


@pytest.mark.parametrize(("path", "value", "named"), CONTRADICTIONS, ids=lambda part: str(part)[:40])
def test_a_record_that_its_own_numbers_deny_is_refused(tmp_path, path, value, named):
    assert f"{named}: the record's numbers give" in message_of(tmp_path, doctored(path, value))


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ((*CANDIDATE, "scale_before"), 10**400, "a whole number is beyond 64 bits"),
        (("model", "id"), "\ud800", "control characters"),
        (("model", "id"), "a\nupdate gate: 1 of 1", "control characters"),
        (("hardware", "cpu"), "\x1b[2J", "control characters"),
    ],
)
def test_what_cannot_be_printed_is_refused(tmp_path, path, value, text):
    assert text in message_of(tmp_path, doctored(path, value))


def test_numbers_beyond_float64_and_repeated_keys_are_no_strict_json(tmp_path):
    text = json.dumps(WHOLE)
    assert "1e999 is beyond a float64" in message_of(tmp_path, text.replace('"max_norm": 1.0', '"max_norm": 1e999'))
    assert "a key occurs twice" in message_of(tmp_path, '{"run_label": "other", ' + text[1:])


def test_the_whole_record_is_accepted():
    assert reading.read(RESULTS, REFERENCE) == WHOLE
