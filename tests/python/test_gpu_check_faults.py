"""`make gpu-check` without a GPU, and things going wrong: files, signals, processes, what an earlier run has left."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "tests/gpu"
sys.path.insert(0, str(FOLDER))

import gpu_check  # noqa: E402
import process  # noqa: E402
import reasons  # noqa: E402
import runner  # noqa: E402
import table  # noqa: E402
from runner import FAILED, INTERRUPTED, NOT_RUN, PASSED, TIMED_OUT, Result, Step  # noqa: E402

FACTS = {"gpu": "none", "torch": "0"}


def step(name, code, limit=20.0, is_correctness=True, **others):
    return Step(name, limit, (sys.executable, "-c", code), is_correctness, **others)


def run(steps, tmp_path, limit=60.0):
    return {result.name: result for result in runner.run_steps(steps, tmp_path, FACTS, limit)}


def imagine(monkeypatch, steps, gpu="imagined"):
    facts = {"gpu": gpu, "torch": "2.15.0", "cuda": "13.2", "arch": "90"}
    monkeypatch.setattr(gpu_check, "find_facts", lambda signals: facts)
    monkeypatch.setattr(gpu_check, "all_steps", lambda output, facts: steps)


def test_the_clock_runs_from_the_beginning(monkeypatch, tmp_path):
    def find_facts(signals):
        time.sleep(0.5)
        return {"gpu": "imagined"}

    left = []
    monkeypatch.setattr(gpu_check, "find_facts", find_facts)
    monkeypatch.setattr(gpu_check, "run_steps", lambda steps, output, facts, limit, *rest: left.append(limit))
    gpu_check.main(["--output", str(tmp_path)])
    assert left[0] <= gpu_check.LIMIT - process.STOP_LIMIT - 0.5
    assert gpu_check.LIMIT == 600


def test_what_no_json_has_is_written_as_words(tmp_path):
    lines = [
        '{"a": NaN, "b": [Infinity, {"c": -Infinity}]}',
        "[1, 2]",
        "7",
        '"not_checked"',
        "null",
        '{"cut": ',
        "[" * 100_000,
        '{"last": 1}',
    ]
    code = f"import os; open(os.environ['GPU_CHECK_MEASURED'], 'a').write({chr(10).join(lines)!r})"
    result = run([step("odd", code)], tmp_path)["odd"]
    assert (result.status, len(result.measured), result.missing()) == (PASSED, 2, {})
    written = json.loads((tmp_path / "result.json").read_text(), parse_constant=pytest.fail)["steps"][0]["measured"]
    assert written == [{"a": "nan", "b": ["inf", {"c": "-inf"}]}, {"last": 1}]
    assert "[x]" not in table.table([step("odd", "")], [result])


def test_what_a_step_measures_is_json(tmp_path, monkeypatch):
    import common

    monkeypatch.setenv(runner.MEASURED, str(tmp_path / "lines"))
    common.measured(ratio=float("nan"), norms=[float("inf")])
    assert json.loads((tmp_path / "lines").read_text(), parse_constant=pytest.fail)["norms"] == ["inf"]


@pytest.mark.parametrize("name", ["values.log", "values.jsonl", "result.json", "result.partial"])
def test_a_file_that_cannot_be_written_costs_neither_the_table_nor_the_other_steps(name, monkeypatch, capsys, tmp_path):
    steps = [step("build", "print(1)"), step("values", "print(1)"), step("times", "print(1)", is_correctness=False)]
    imagine(monkeypatch, steps)
    (tmp_path / name / "in the way").mkdir(parents=True)
    monkeypatch.setattr(gpu_check, "parse", lambda arguments: (tmp_path, {found.name for found in steps}))
    code = gpu_check.main([])
    said = capsys.readouterr().out
    assert re.search(r"^times +passed", said, re.M)
    if name.startswith("values"):
        assert code == 1 and re.search(r"^values +FAILED.*\n    error: .*" + name, said, re.M)
    else:
        assert code == 5 and "the results could not be written: " in said


def test_the_table_is_printed_whatever_the_runner_meets(monkeypatch, capsys, tmp_path):
    def break_down(result):
        raise MemoryError

    imagine(monkeypatch, [step("build", "print(1)"), step("operators", "print(1)")])
    monkeypatch.setattr(gpu_check, "report", break_down)
    with pytest.raises(MemoryError):
        gpu_check.main(["--output", str(tmp_path)])
    assert re.search(r"^build +passed", capsys.readouterr().out, re.M)


def test_a_closed_terminal_is_no_failure(tmp_path):
    program = """
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
import gpu_check
from runner import Step
gpu_check.find_facts = lambda signals: {"gpu": "imagined"}
gpu_check.all_steps = lambda *rest: [Step("build", 9.0, (sys.executable, "-c", "print('\\u2014')"), True)]
os.close(1)
raise SystemExit(gpu_check.main(["--output", sys.argv[2]]))
"""
    command = [sys.executable, "-c", program, str(FOLDER), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads((tmp_path / "result.json").read_text())["steps"][0]["status"] == PASSED


def test_a_log_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "READ_BYTES", 1000)
    code = "print('fatal error: the reason'); print('x\\n' * 100_000); print('the end'); raise SystemExit(1)"
    result = run([step("loud", code)], tmp_path)["loud"]
    assert result.said[0] == "fatal error: the reason" and result.said[-1] == "the end"


def test_the_reason_comes_first():
    log = [
        "+ cmake -DCMAKE_CXX_FLAGS=-Werror not found",
        "-- fine",
        "CMake Error at CMakeLists.txt:7 (message):",
        "  no compiler",
        "g++ -Werror x.cpp",
        "make: /nowhere/ccache: No such file or directory",
        *[f"line {k}" for k in range(50)],
    ]
    first = [log[2], log[3], log[5]]
    assert reasons.reasons(log) == first
    assert reasons.most_telling(reasons.worth_keeping(log)) == [*first, "line 48", "line 49"]
    result = Result("one", FAILED, said=reasons.worth_keeping(log))
    assert "    CMake Error at CMakeLists.txt:7 (message):\n      no compiler\n" in table.table(
        [step("one", "")], [result]
    )
    assert reasons.most_telling(["WRONG: the first", *log[6:]])[0] == "WRONG: the first"


# ---- the environment ----


def test_launchers_that_are_not_there_are_dropped(monkeypatch, tmp_path):
    there = tmp_path / "ccache"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    monkeypatch.setenv("CMAKE_CXX_COMPILER_LAUNCHER", str(tmp_path / "none"))
    monkeypatch.setenv("CMAKE_CUDA_COMPILER_LAUNCHER", f"{there};--option")
    code = "import os; print([os.environ.get(f'CMAKE_{name}_COMPILER_LAUNCHER') for name in ('CXX', 'CUDA')])"
    assert run([step("build", code)], tmp_path)["build"].said == [str([None, f"{there};--option"])]
    usable = process.usable_environment({"PATH": str(tmp_path), "CMAKE_CXX_COMPILER_LAUNCHER": "ccache"})
    assert "CMAKE_CXX_COMPILER_LAUNCHER" in usable
    assert "CMAKE_CXX_COMPILER_LAUNCHER" not in process.usable_environment(usable | {"PATH": "/nowhere"})


def test_make_hands_on_the_environment_as_it_is(tmp_path):
    """The Makefile's own has compiler launchers and a PYTHONPATH that another machine need not have."""
    own = {"PYTHONPATH": "/of/the/user", "CMAKE_CXX_COMPILER_LAUNCHER": "sccache"}
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("CMAKE_", "MAKE", "CCACHE"))}
    seen = {}
    for given in ({}, own):
        command = ["make", "--no-print-directory", "gpu-check", "TORCH=0.0.0", "GPU_PYTHON=env #"]
        kept = {key: value for key, value in environment.items() if key != "PYTHONPATH"} | given
        done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, timeout=60, check=True)
        found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        seen = {key: value for key, value in found.items() if re.fullmatch("PYTHONPATH|CMAKE_.*|CCACHE_.*", key)}
        assert seen == given


# ---- signals ----

RUN_STEPS = """
import pathlib, sys, time
sys.path.insert(0, sys.argv[1])
import gpu_check
from runner import Step
code = (
    "import subprocess, sys, time;"
    "late = 'import sys, time; time.sleep(4); open(sys.argv[1], chr(119))';"
    "subprocess.Popen([sys.executable, '-c', late, sys.argv[1]]);"
    "open(sys.argv[2], 'w'); time.sleep(60)"
)
folder = pathlib.Path(sys.argv[2])
gpu_check.find_facts = lambda signals: {"gpu": "imagined"}
gpu_check.all_steps = lambda *rest: [
    Step("build", 50.0, (sys.executable, "-c", code, str(folder / "late"), str(folder / "ready")), True),
    Step("operators", 50.0, (sys.executable, "-c", "print(1)"), True),
]
raise SystemExit(gpu_check.main(["--output", str(folder)]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_step_with_its_children_and_prints_the_table(number, tmp_path):
    command = [sys.executable, "-c", RUN_STEPS, str(FOLDER), str(tmp_path)]
    checked = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 30
    while not (tmp_path / "ready").exists() and time.monotonic() < end:
        time.sleep(0.05)
    checked.send_signal(number)
    said, errors = checked.communicate(timeout=30)
    assert (checked.returncode, errors) == (128 + number, "")
    assert re.search(rf"^build +{INTERRUPTED}.*\n    stopped by {number.name}$", said, re.M)
    assert re.search(r"^operators +not run", said, re.M)
    steps = json.loads((tmp_path / "result.json").read_text())["steps"]
    assert [found["status"] for found in steps] == [INTERRUPTED, NOT_RUN]
    time.sleep(4.5)
    assert not (tmp_path / "late").exists()


def test_a_signal_while_torch_is_asked(tmp_path):
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import gpu_check
gpu_check.FACTS = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"
raise SystemExit(gpu_check.main(["--output", sys.argv[2]]))
"""
    command = [sys.executable, "-c", program, str(FOLDER), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (143, "")


def test_handlers_are_put_back_and_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with process.Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGINT) != signal.default_int_handler
            assert signals.received is None
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_process_that_cannot_be_killed_does_not_hang_the_check(monkeypatch, tmp_path):
    """As one that is stuck in the driver. It is let go by itself here."""
    monkeypatch.setattr(process, "STOP_LIMIT", 0.3)
    monkeypatch.setattr(process.os, "killpg", lambda group, number: None)
    begin = time.monotonic()
    result = run([step("stuck", "import time; time.sleep(6)", limit=0.5)], tmp_path)["stuck"]
    assert result.status == TIMED_OUT and time.monotonic() - begin < 5


def test_what_a_step_leaves_running_is_stopped_too(tmp_path):
    late = tmp_path / "late"
    code = f"""import subprocess, sys
code = "import sys, time; time.sleep(2); open(sys.argv[1], 'w')"
subprocess.Popen([sys.executable, "-c", code, {str(late)!r}])"""
    assert run([step("careless", code)], tmp_path)["careless"].status == PASSED
    time.sleep(2.5)
    assert not late.exists()


# ---- what an earlier run has left ----


def test_nothing_of_an_earlier_run_is_left_at_the_beginning(tmp_path):
    for name in ("one.log", "one.jsonl", "two.log", "two.jsonl", "result.json", "other.jsonl"):
        (tmp_path / name).write_text('{"old": 1}\n')
    code = f"import os; print(sorted(os.listdir({str(tmp_path)!r})), open({str(tmp_path / 'result.json')!r}).read())"
    results = run([step("one", code), step("two", "print(1)", needs=("nothing",))], tmp_path)
    said = "\n".join(results["one"].said)
    assert "two.log" not in said and "two.jsonl" not in said and "other.jsonl" in said
    assert '"steps": []' in said and '"gpu": "none"' in said
    assert json.loads((tmp_path / "one.jsonl").read_text()) == {"facts": FACTS}
    assert results["one"].measured == []
