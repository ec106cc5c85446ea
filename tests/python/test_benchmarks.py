"""The benchmark of clipping runs and writes what it documents. No time is looked at: a test must not depend on load."""

import json
import math
import pathlib
import platform
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks/clip_grad_norm.py"
sys.path.insert(0, str(ROOT / "benchmarks"))

from clipping import cases, clock, contenders, record  # noqa: E402


def run(*arguments):
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The output of a quick run, and its record."""
    folder = tmp_path_factory.mktemp("results")
    done = run("--quick", "--label", "smoke", "--results", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, (folder / "smoke.json").read_text()


def strict(text):
    """JSON without NaN and Infinity."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the record"))


def test_a_record_has_every_case_kind_and_number_of_threads(quick):
    found = strict(quick[1])
    keys = [(result["case"], result["kind"], result["threads"]) for result in found["results"]]
    names = [case.name for case in cases.all_cases()]
    assert keys == [(name, kind, threads) for name in names for kind in ("fused", "ordinary") for threads in (1, 2)]
    assert (found["schema"], found["label"], found["quick"]) == ("clip_grad_norm/1", "smoke", True)
    assert found["software"]["torch"] == torch.__version__


def test_a_record_has_the_documented_keys(quick):
    import clipping

    found = strict(quick[1])
    for part in (found, found["machine"], found["software"], *found["results"]):
        assert [key for key in part if key not in clipping.__doc__] == []


def test_a_quick_record_has_times_but_no_verdict(quick):
    for result in strict(quick[1])["results"]:
        times = [time for time in result["milliseconds"].values() if time is not None]
        assert all(0 < time["best"] <= time["median"] for time in times)
        assert result["repetitions"] >= clock.FEWEST
        has_read = "Mi" in result["case"] or "GPT" in result["case"] or "4,096" in result["case"]
        assert len(times) == (3 if has_read else 2)
        assert (result["read_share"] is not None) == (result["ratio_limit"] is not None) == has_read
        verdicts = [result[key] for key in ("ratio_goal", "ratio_met", "read_share_goal", "read_share_met")]
        assert verdicts == [None] * 4


def test_a_record_names_no_machine_and_no_path(quick):
    assert platform.node() not in quick[1]
    assert str(ROOT) not in quick[1]
    assert str(pathlib.Path.home()) not in quick[1]


def test_the_table_has_a_line_per_result(quick):
    lines = quick[0].splitlines()
    assert len([line for line in lines if " fused " in line or " ordinary " in line]) == 28


@pytest.mark.parametrize("arguments", [["--label", "a/b"], ["--cases", "nothing"], ["--threads", "0"]])
def test_wrong_arguments_are_refused(arguments, tmp_path):
    done = run("--quick", "--results", str(tmp_path), *arguments)
    assert done.returncode == 2
    assert arguments[0] in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_cases_are_those_of_the_table():
    by_name = {case.name: case for case in cases.all_cases()}
    assert sum(math.prod(shape) for shape in cases.gpt2_shapes()) == 124_439_808
    assert len(cases.gpt2_shapes()) == 148
    assert by_name["64 Mi fp32"].bytes == 2**28
    mixed = by_name["5,000 mixed"]
    assert len(mixed.tensors) == 5000
    assert mixed.bytes == pytest.approx(10e6, rel=0.02)
    assert {dtype for _, dtype in mixed.tensors} == {torch.float32, torch.bfloat16}


def test_goals_are_judged_by_the_median():
    case = cases.Case("case", cases.uniform(1, 4, torch.float32), 3.0, 2.0, is_large=True)
    times = {"torch": [3.0, 3.0, 9.0], "ampscaler": [1.0, 1.0, 5.0], "read as int64": [0.9, 0.8, 0.9]}
    result = record.result(clock.Cell(case, "fused", 2, 1, times), judged=True)
    assert (result["ratio"], result["ratio_met"]) == ({"median": 3.0, "best": 3.0}, True)
    assert (result["read_share"], result["read_share_met"]) == ({"median": 0.9, "best": 0.8}, True)
    slower = record.result(clock.Cell(case, "fused", 2, 1, times | {"ampscaler": [1.2, 1.2, 1.0]}), judged=True)
    assert (slower["ratio_met"], slower["read_share_met"]) == (False, False)
    one_thread = record.result(clock.Cell(case, "fused", 1, 1, times), judged=True)
    assert (one_thread["ratio_goal"], one_thread["read_share_met"]) == (None, True)


@pytest.mark.parametrize("kind", cases.KINDS)
def test_measuring_leaves_the_gradients_as_they_were_after_an_even_number_of_visits(kind):
    case = cases.Case("case", cases.uniform(3, 100, torch.bfloat16), 1, 1)
    gradients = contenders.Gradients(case, kind)
    before = [value.clone() for value in gradients.values()]
    recipe = contenders.TorchRecipe()
    clock.timed(recipe, gradients)
    assert not torch.equal(gradients.values()[0], before[0])
    clock.timed(recipe, gradients)
    assert all(map(torch.equal, gradients.values(), before))


def test_what_does_something_else_is_not_measured():
    class Forgetful(contenders.OneCall):
        def run(self, gradients):
            return super().run(gradients) * 1.01

    gradients = contenders.Gradients(cases.Case("case", cases.uniform(3, 100, torch.float32), 1, 1), "fused")
    runners = {"torch": contenders.TorchRecipe(), "ampscaler": Forgetful("fused")}
    with pytest.raises(AssertionError, match="ampscaler does not do what is to be measured"):
        contenders.check(gradients, "fused", runners)


def test_large_lists_are_rotated_past_the_cache():
    large = cases.all_cases()[0]
    copies = clock.copies_of(large, 4)
    assert (copies - 1) * large.bytes > clock.last_level_cache_bytes()
    assert math.gcd(copies, 4) == 1
    assert clock.copies_of(cases.Case("small", cases.uniform(10, 64, torch.float32), 1, 1), 2) == 1
