"""The steps of `make gpu-check` without a GPU: those that can run on the CPU, and what they judge by."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import ampscaler

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "tests/gpu"
sys.path.insert(0, str(FOLDER))

import judge  # noqa: E402
import runner  # noqa: E402


def run_step(name, tmp_path, *arguments):
    """On the CPU; returns what it has measured."""
    file = tmp_path / "measured"
    file.unlink(missing_ok=True)
    stage = pathlib.Path(ampscaler.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(stage), runner.MEASURED: str(file)}
    command = [sys.executable, str(FOLDER / f"step_{name}.py"), "--build", str(tmp_path), "--device", "cpu", "--quick"]
    command += arguments
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return runner.read_lines(file)


@pytest.mark.parametrize("name", ["operators", "training", "passes", "launches"])
def test_a_step_runs_on_the_cpu(name, tmp_path):
    assert run_step(name, tmp_path)


def test_checks_go_on_after_a_failure(capsys):
    import common

    checks = common.Checks()
    assert checks.verdict() == 1  # nothing was checked
    checks.expect(False, "this")
    checks.expect(True, "that")
    assert (checks.count, checks.failures, checks.verdict()) == (2, ["this"], 1)
    assert "WRONG: this" in capsys.readouterr().out


def test_the_compiler_is_the_one_that_cmake_has_found(tmp_path):
    import common

    assert common.nvcc_of(tmp_path) is None
    folder = tmp_path / "CMakeFiles/3.30.0"
    folder.mkdir(parents=True)
    (folder / "CMakeCUDACompiler.cmake").write_text(
        'set(CMAKE_CUDA_COMPILER "/a/nvcc")\nset(CMAKE_CUDA_COMPILER_ID "x")\n'
    )
    assert common.nvcc_of(tmp_path) == pathlib.Path("/a/nvcc")


def test_the_compiler_of_this_build_is_found():
    import common

    build = pathlib.Path(ampscaler.__file__).parents[2]
    if not list(build.glob("csrc/CMakeFiles/ampscaler.dir/kernels/cuda/*.cu.o")):
        pytest.skip("no build with CUDA kernels")
    nvcc = common.nvcc_of(build)
    assert nvcc is not None and nvcc.is_file()


# ---- what the steps judge by ----


def test_launches_are_those_of_the_documented_table():
    """docs/gpu.md, "launches, up to 2,040 tensors of any dtypes"."""
    text = (ROOT / "docs/gpu.md").read_text()
    rows = re.findall(r"^\| (`.+`) \| (\d+) \| .+ \|$", text, re.M)
    documented = {name: int(count) for names, count in rows for name in re.findall(r"`(\w+)`", names)}
    assert len(documented) == 7
    for name, launches in documented.items():
        call = "scale_grads_ that clips" if name == "scale_grads_" else name
        assert judge.expected_launches(call, 2040) == judge.expected_launches(call, 1) == launches
    assert judge.expected_launches("unscale_with_stats_ and scale_grads_", 300) == 2
    assert judge.expected_launches("grad_stats", 2041) == 2
    assert judge.expected_launches("update_scale_", 5000) == 1
    assert judge.expected_launches("aten's unscale", 300) is None


def test_the_step_counts_every_call_that_is_judged():
    source = (FOLDER / "step_launches.py").read_text()
    assert [call for call in judge.LAUNCHES if f'"{call}"' not in source] == []


def test_a_launch_too_many_or_too_few_is_wrong():
    counted = {("grad_stats", 300): 1, ("grad_stats", 2040): 2, ("update_scale_", 300): 0, ("aten's unscale", 300): 9}
    assert judge.wrong_launches(counted) == [
        "grad_stats of 2040 tensors took 2 launches, not 1",
        "update_scale_ of 300 tensors took 0 launches, not 1",
    ]


def roofline(tmp_path, *lines):
    file = tmp_path / "roofline.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_roofline_of_another_gpu_is_no_measure(tmp_path):
    facts = json.dumps({"facts": {"gpu": "one"}})
    file = roofline(
        tmp_path, facts, '{"what": "read", "gb_per_s": 7.0}', '{"what": "read", "gb_per_s": 9.0}', "[1]", "{"
    )
    assert judge.read_roofline(file, "one") == ({"read": 9.0}, None)
    best, why = judge.read_roofline(file, "two")
    assert (best, why) == ({}, "the roofline there is was measured on one, and this is two")
    assert judge.read_roofline(roofline(tmp_path, '{"what": "read", "gb_per_s": 7.0}'), "one")[1] is not None
    assert judge.read_roofline(tmp_path / "none", "one")[1] == "the step roofline has measured nothing to compare with"


def test_the_step_passes_says_that_the_roofline_is_of_another_gpu(tmp_path):
    facts = json.dumps({"facts": {"gpu": "one"}})
    file = roofline(tmp_path, facts, '{"what": "read", "gb_per_s": 7.0}')
    lines = {gpu: run_step("passes", tmp_path, "--roofline", str(file), "--gpu", gpu) for gpu in ("one", "two")}
    shares = {gpu: [line.get("share_of_roofline") for line in found] for gpu, found in lines.items()}
    assert any(share is not None for share in shares["one"])
    assert not any(share is not None for share in shares["two"])
    assert sum(runner.NOT_CHECKED in line for line in lines["two"]) == 2


def test_types_of_norm_and_tables_are_all_in_the_list_of_kernels():
    """every_kernel.cu: what compute-sanitizer looks at."""
    source = (FOLDER / "every_kernel.cu").read_text()
    assert "kNormTypes[] = {0.0, 1.0, 2.0, 3.0, HUGE_VAL}" in source
    launched = set(re.findall(r"cuda::(launch_\w+)\(", source))
    declared = set(re.findall(r"cudaError_t (launch_\w+)\(", (ROOT / "csrc/kernels/cuda/launch.h").read_text()))
    assert launched == declared and len(declared) == 10
    assert "core::kLargeTable + 60" in source
