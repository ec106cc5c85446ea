"""`make gpu-check` without a GPU: its runner on steps that are not what they seem."""

import json
import pathlib
import re
import signal
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "tests/gpu"
sys.path.insert(0, str(FOLDER))

import gpu_check  # noqa: E402
import runner  # noqa: E402
import table  # noqa: E402
from runner import FAILED, NOT_RUN, PASSED, SKIPPED, TIMED_OUT, Result, Step  # noqa: E402

FACTS = {"gpu": "none", "torch": "0"}
MEASURE = "import os; file = open(os.environ['GPU_CHECK_MEASURED'], 'a'); file.write('{\"x\": 1}\\n'); file.flush();"


def step(name, code, limit=20.0, is_correctness=True, **others):
    return Step(name, limit, (sys.executable, "-c", code), is_correctness, **others)


def run(steps, tmp_path, limit=60.0):
    results = runner.run_steps(steps, tmp_path, FACTS, limit)
    return {result.name: result for result in results}


def test_a_verdict_for_each_way_to_end(tmp_path):
    steps = [
        step("good", "print('fine')"),
        step("bad", "print('first'); print('why'); raise SystemExit(3)"),
        step("skip", "raise SystemExit(77)"),
        step("killed", "import os; os.kill(os.getpid(), 9)"),
        Step("missing", 5.0, (str(tmp_path / "no such program"),), True),
    ]
    results = run(steps, tmp_path)
    assert [result.status for result in results.values()] == [PASSED, FAILED, SKIPPED, FAILED, FAILED]
    assert results["bad"].said == ["first", "why"]
    assert "no such program" in results["missing"].said[0]


def test_a_step_that_does_not_end_is_stopped_with_its_children_and_keeps_what_it_measured(tmp_path):
    child = tmp_path / "child"
    code = f"""{MEASURE}
import subprocess, sys, time
code = "import sys, time; time.sleep(7); open(sys.argv[1], 'w')"
subprocess.Popen([sys.executable, "-c", code, {str(child)!r}])
file.write('{{"x": '); file.flush()
time.sleep(60)"""
    begin = time.monotonic()
    result = run([step("endless", code, limit=5.0)], tmp_path)["endless"]
    assert result.status == TIMED_OUT
    assert time.monotonic() - begin < 30
    assert result.measured == [{"x": 1}]  # the line that was cut off is left out
    time.sleep(4)
    assert not child.exists()


def test_a_step_whose_need_has_not_passed_is_not_run(tmp_path):
    steps = [step("build", "raise SystemExit(1)"), step("use", "print(1)", needs=("build",))]
    result = run(steps, tmp_path)["use"]
    assert (result.status, result.said) == (NOT_RUN, ["the step build has not passed"])


def test_all_steps_together_have_a_limit(tmp_path):
    steps = [step("long", "import time; time.sleep(60)", limit=50.0), step("late", "print(1)")]
    results = run(steps, tmp_path, limit=1.5)
    assert (results["long"].status, results["long"].limit < 2, results["late"].status) == (TIMED_OUT, True, NOT_RUN)


def test_results_are_whole_after_every_step(tmp_path):
    seen = []

    def report(result):
        written = json.loads((tmp_path / "result.json").read_text(), parse_constant=pytest.fail)
        seen.append([found["name"] for found in written["steps"]])
        assert written["facts"] == FACTS

    steps = [step("a", MEASURE), step("b", "raise SystemExit(1)"), step("c", "print(1)")]
    runner.run_steps(steps, tmp_path, FACTS, 60.0, report)
    assert seen == [["a"], ["a", "b"], ["a", "b", "c"]]
    assert json.loads((tmp_path / "result.json").read_text())["steps"][0]["measured"] == [{"x": 1}]


@pytest.mark.parametrize(
    ("correctness", "speed", "good"),
    [
        (PASSED, PASSED, True),
        (SKIPPED, PASSED, True),
        (PASSED, FAILED, True),
        (PASSED, TIMED_OUT, True),
        (FAILED, PASSED, False),
        (TIMED_OUT, PASSED, False),
        (NOT_RUN, PASSED, False),
    ],
)
def test_only_correctness_decides(correctness, speed, good):
    steps = [step("values", ""), step("times", "", is_correctness=False)]
    assert table.is_good(steps, [Result("values", correctness), Result("times", speed)]) == good


def test_the_table_has_every_step_and_ticks_what_is_settled():
    steps = [
        step("one", "", settles=("this",)),
        step("two", "", settles=("that",)),
        step("three", "", is_correctness=False),
    ]
    text = table.table(steps, [Result("one", PASSED, 1.0), Result("two", FAILED, 2.0, said=["the reason"])])
    assert re.search(r"^one +passed", text, re.M)
    assert re.search(r"^two +FAILED.*\n    the reason$", text, re.M)
    assert re.search(r"^three +not run", text, re.M)
    assert "[x] this" in text
    assert "[ ] that" in text


def test_what_a_step_could_not_check_stays_open_and_is_named():
    steps = [step("one", "", settles=("this", "that")), step("two", "", settles=("more",)), step("three", "")]
    lines = [{"x": 1}, {"not_checked": "that", "why": "no memory"}]
    results = [Result("one", PASSED, measured=lines), Result("two", SKIPPED), Result("three", PASSED)]
    assert table.table(steps, results).splitlines()[-3:] == ["[x] this", "[ ] that (no memory)", "[ ] more"]
    assert table.verdict(steps, results) == "correctness: no step failed; skipped: two; not checked: that"
    results[2].status = TIMED_OUT
    assert table.verdict(steps, results).startswith("correctness: three did not pass; skipped: two")
    assert table.verdict(steps[:1], [Result("one", PASSED)]) == "correctness: no step failed"


def test_steps_name_items_of_the_list():
    """What they report as not checked must be found again in the table."""
    for found in all_steps():
        source = pathlib.Path(found.command[1]).read_text()
        names = dict(re.findall(r'^([A-Z]+) = "(.*)"$', source, re.M))
        items = re.findall(r'not_checked\("([^"]+)"', source)
        if "not_checked(" in source and not items:
            items = [value for value in names.values() if " " in value]
        assert set(items) <= set(found.settles), found.name


def all_steps():
    return gpu_check.all_steps(pathlib.Path("output"), {"arch": "90"})


def test_correctness_comes_before_speed_within_ten_minutes():
    correctness = [step.is_correctness for step in all_steps()]
    assert correctness == sorted(correctness, reverse=True)
    assert sum(step.limit for step in all_steps()) <= 600 <= gpu_check.LIMIT
    assert len(correctness) == 8


def test_programs_of_the_steps_exist():
    for found in all_steps():
        assert pathlib.Path(found.command[1]).is_file(), found.command


def test_without_a_gpu_it_says_so(monkeypatch, capsys, tmp_path):
    facts = {"gpu": None, "torch": "2.15.0", "cuda": "13.2"}
    monkeypatch.setattr(gpu_check, "find_facts", lambda signals: facts)
    assert gpu_check.main(["--output", str(tmp_path)]) == 3
    assert "no GPU on this machine: torch 2.15.0 (CUDA 13.2) sees no CUDA device" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import no_such_torch", "No module named 'no_such_torch'"),
        ("import time; time.sleep(60)", "it did not answer within 0 s"),
        ("raise SystemExit(9)", "it said nothing, and ended with exit code 9"),
        ("print('no JSON'); print('[1]')", "it said nothing, and ended with exit code 0"),
        ("import os; os.kill(os.getpid(), 11)", "exit code -11"),
    ],
)
def test_a_torch_that_cannot_be_asked_is_not_called_no_gpu(program, why, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gpu_check, "FACTS", program)
    monkeypatch.setattr(gpu_check, "FACTS_LIMIT", 0.4 if "sleep" in program else 20.0)
    (tmp_path / "result.json").write_text("of an earlier run")
    assert gpu_check.main(["--output", str(tmp_path)]) == 4
    said = capsys.readouterr().out
    assert said.startswith("could not ask torch: ") and why in said
    assert "no GPU" not in said
    assert why in json.loads((tmp_path / "result.json").read_text())["facts"]["error"]


def test_facts_are_found_among_what_torch_prints():
    assert gpu_check.parse_facts('hello\n{"gpu": "H"}\n[1]\nbye') == {"gpu": "H"}


def test_exit_codes_are_documented():
    """2 is argparse's, and make's for every failure."""
    text = (ROOT / "docs/gpu.md").read_text()
    for code in (0, 1, 2, 3, 4, 5, 130, 143, 129):
        assert re.search(rf"^\| {code} \|", text, re.M), code
        assert re.search(rf"\b{code}\b", gpu_check.__doc__), code
    assert "make returns 2 for every failure" in " ".join(text.split())
    assert 128 + signal.SIGINT == 130 and 128 + signal.SIGTERM == 143 and 128 + signal.SIGHUP == 129


def test_with_a_gpu_it_runs_the_chosen_steps_and_fails_with_the_build(monkeypatch, capsys, tmp_path):
    facts = {"gpu": "imagined", "torch": "2.15.0", "cuda": "13.2", "arch": "90"}
    monkeypatch.setattr(gpu_check, "find_facts", lambda signals: facts)
    broken = [step("build", "raise SystemExit(1)"), step("operators", "print(1)", needs=("build",))]
    monkeypatch.setattr(gpu_check, "all_steps", lambda output, facts: broken)
    assert gpu_check.main(["--output", str(tmp_path), "--step", "operators"]) == 1
    assert re.search(r"^operators +not run", capsys.readouterr().out, re.M)
    for wrong in (["--step", "nothing"], ["--output", str(tmp_path / "result.json")]):
        with pytest.raises(SystemExit) as ended:
            gpu_check.main(wrong)
        assert ended.value.code == 2


def test_the_documented_list_is_what_the_steps_settle():
    """docs/gpu.md: the table of what only a GPU can settle."""
    text = (ROOT / "docs/gpu.md").read_text()
    documented = re.findall(r"^\| (\w+) \| \d+ s \| ([^|]+) \|", text, re.M)
    found = [(name, tuple(re.split(r"; ", items.strip()))) for name, items in documented]
    assert found == [(step.name, step.settles) for step in all_steps() if step.settles]
    for one in all_steps():
        assert f"| {one.name} | {one.limit:.0f} s |" in text
