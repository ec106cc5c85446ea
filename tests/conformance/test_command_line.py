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
        (["--scaler", ":X"], "scaler ':X': expected module:Class"),
        (["--scaler", "no_such_module:X"], "module 'no_such_module': ModuleNotFoundError: No module named"),
        (["--scaler", "broken_module:X"], "module 'broken_module': SyntaxError: "),
        (["--import", "broken_module"], "module 'broken_module': SyntaxError: "),
        (["--scaler", "torch.amp:NoSuchClass"], "has no attribute 'NoSuchClass'"),
        (["--scaler", "torch:ones"], "scaler 'torch:ones': expected a class, got builtin_function_or_method"),
        (["--differences", "missing.json"], "--differences missing.json: [Errno 2]"),
        (["--differences", "text.json"], "--differences text.json: Expecting value"),
        (["--differences", "list.json"], "expected a JSON object of behaviour ids and reasons"),
        (["--differences", "unknown.json"], "expected ids of the contract, got S99.1"),
        (["--json", "no/such/folder.json"], "--json no/such/folder.json: expected a file in a folder that exists"),
        (["--junit", "."], "--junit .: expected a file in a folder that exists"),
        (["--ops", *AMPSCALER, "--section", "4"], "expected a section with a behaviour of operators"),
        (["--random", "0"], "--random 0: expected a number of programs above 0"),
        (["--random", "3", "--junit", "x.xml"], "--random: expected no --junit"),
        (["--random", "3", "--ops", *AMPSCALER], "--random: expected no --ops"),
        (["--ops", "aten::no_such_operator", AMPSCALER[1]], "operator 'aten::no_such_operator' is not registered"),
        (["--ops", "unscale", "update"], "operator 'unscale': expected a qualified name"),
        (["--device", "no_such_device"], "no_such_device"),
        (["--section", "17"], "argument --section"),
        (["--no-such-option"], "unrecognized arguments"),
    ],
)
def test_wrong_usage_gives_2_and_a_sentence(capsys, tmp_path, monkeypatch, arguments, error):
    files = {"broken_module.py": "def", "text.json": "text", "list.json": "[]", "unknown.json": '{"S99.1": "never"}'}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    code, printed = exit_code_and_error(capsys, *arguments)
    assert code == 2
    assert error in printed


def test_the_list_has_ids_and_sentences_and_runs_nothing(capsys):
    assert main(["--list", "--section", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("S")] == [f"S4.{n}" for n in range(1, 17)]


def test_the_list_needs_no_device(capsys):
    assert main(["--list", "--section", "3", "--device", "no_such_device"]) == 0


WRONG_OPERATORS = """
import torch
library = torch.library.Library("wrong_pair", "DEF")
library.define("unscale_(Tensor(a!)[] grads, Tensor(b!) found_inf, Tensor inv_scale) -> ()")
library.define("update_(Tensor(a!) scale, Tensor(b!) tracker, Tensor found_inf, float g, float b, int n) -> ()")

def unscale(grads, found_inf, inv_scale):
    torch._amp_foreach_non_finite_check_and_unscale_(grads[:1], found_inf, inv_scale)

library.impl("unscale_", unscale, "CPU")
library.impl("update_", lambda *arguments: torch._amp_update_scale_(*arguments) and None, "CPU")
"""


def test_a_wrong_pair_of_operators_gives_1(capsys, tmp_path, monkeypatch):
    (tmp_path / "wrong_pair.py").write_text(WRONG_OPERATORS)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["--ops", "wrong_pair::unscale_", "wrong_pair::update_", "--import", "wrong_pair"]) == 1
    assert "S13.4 " in capsys.readouterr().out.split("fail:")[1]


def test_random_programs_give_0_or_1_and_a_script(capsys):
    assert main(["--random", "20", "--seed", "3"]) == 0
    assert "on cpu, torch " in capsys.readouterr().out
    assert main(["--random", "300", "--scaler", "wrong_scalers.state:TrackerLostOnLoad"]) == 1
    assert "# Scaler = torch.amp.GradScaler  # gives what is expected" in capsys.readouterr().out


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
