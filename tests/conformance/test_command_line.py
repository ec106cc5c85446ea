"""python -m ampscaler.conformance: tables, files and exit codes."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from ampscaler.conformance.__main__ import main
from ampscaler.conformance.subject import AMPSCALER, CPP_CLASS, TORCH_SCALER

FAST = ["--section", "3"]


def exit_code_and_error(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    return stopped.value.code, capsys.readouterr().err


def test_a_conforming_scaler_gives_0_and_a_table(capsys):
    assert main([*FAST, "--scaler", TORCH_SCALER]) == 0
    printed = capsys.readouterr().out
    assert "torch.amp:GradScaler on cpu, torch " in printed
    assert " 3  Lazy initialisation                                  6  " in printed
    assert "fail:" not in printed


def test_a_wrong_scaler_gives_1_with_calls_expected_and_got(capsys):
    assert main(["--scaler", "wrong_scalers.state:TrackerLostOnLoad", "--section", "9"]) == 1
    printed = capsys.readouterr().out
    assert "\nfail:\n" in printed
    first = printed.split("first difference, ")[1]
    assert first.startswith("S9.")
    assert ".load_state_dict({" in first
    assert ": expected " in first
    assert ", got " in first


def test_a_process_ends_with_the_exit_code():
    command = [sys.executable, "-m", "ampscaler.conformance", *FAST]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--scaler", "torch.amp"], "scaler 'torch.amp': expected module:Class"),
        (["--scaler", "no_such_module:X"], "scaler 'no_such_module:X': No module named 'no_such_module'"),
        (["--scaler", "torch.amp:NoSuchClass"], "has no attribute 'NoSuchClass'"),
        (["--scaler", "torch:__version__"], "expected a class, got"),
        (["--import", "no_such_module"], "No module named 'no_such_module'"),
        (["--ops", "aten::no_such_operator", AMPSCALER[1]], "operator 'aten::no_such_operator' is not registered"),
        (["--ops", "unscale", "update"], "operator 'unscale': expected a qualified name"),
        (["--device", "no_such_device"], "no_such_device"),
        (["--section", "17"], "argument --section"),
        (["--no-such-option"], "unrecognized arguments"),
    ],
)
def test_wrong_usage_gives_2_and_a_sentence(capsys, arguments, error):
    code, printed = exit_code_and_error(capsys, *arguments)
    assert code == 2
    assert error in printed


def test_the_list_has_ids_and_sentences_and_runs_nothing(capsys):
    assert main(["--list", "--section", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("S")] == [f"S4.{n}" for n in range(1, 17)]


def test_operators_alone_are_held_against_section_13(capsys):
    assert main(["--ops", *AMPSCALER]) == 0
    printed = capsys.readouterr().out
    assert "13  Operators " in printed
    assert "Constructor" not in printed


def test_the_files_say_what_the_table_says(capsys, tmp_path):
    json_file, junit_file = tmp_path / "results.json", tmp_path / "results.xml"
    files = ["--json", str(json_file), "--junit", str(junit_file)]
    assert main([*FAST, "--scaler", CPP_CLASS, *files]) == 0
    report = json.loads(json_file.read_text())
    assert report["subject"] == CPP_CLASS
    assert sum(report["counts"].values()) == len(report["results"]) == 6
    suite = ElementTree.parse(junit_file).getroot()
    assert suite.get("tests") == "6"
    assert suite.get("failures") == "0"
    skipped = report["counts"]["n/a"] + report["counts"]["different"]
    assert int(suite.get("skipped")) == len(suite.findall(".//skipped")) == skipped


def test_a_failure_is_one_in_junit(tmp_path):
    file = tmp_path / "results.xml"
    assert main(["--scaler", "wrong_scalers.state:TrackerLostOnLoad", "--section", "9", "--junit", str(file)]) == 1
    failures = ElementTree.parse(file).getroot().findall(".//failure")
    assert failures
    assert "load_state_dict" in failures[0].text


def test_declared_differences_are_no_failures_and_must_differ(capsys, tmp_path):
    file = tmp_path / "differences.json"
    wrong = ["--scaler", "wrong_scalers.state:TrackerLostOnLoad", "--section", "9", "--differences", str(file)]
    file.write_text(json.dumps({"S9.3": "it forgets", "S9.4": "it forgets"}))
    assert main(wrong) == 0
    assert "different:\n  S9.3 " in capsys.readouterr().out
    file.write_text(json.dumps({"S9.2": "it does not", "S9.3": "it forgets", "S9.4": "it forgets"}))
    assert main(wrong) == 1
    assert "listed as different (it does not), but it behaves as torch" in capsys.readouterr().out
