"""The training step of the manager and its C++ twin: the same problem, the same diagnostics, to the letter."""

import os
import pathlib
import subprocess
import sys

import pytest

import ampscaler

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(ampscaler.__file__).parents[2]
PROGRAM = BUILD / "examples/cpp/robust_training"


def output_of(*command):
    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(ampscaler.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python_output():
    return output_of(sys.executable, str(ROOT / "examples/python/robust_training.py"))


def test_the_scale_is_cut_grows_and_stays_at_its_cap(python_output):
    """The first weighted gradient is 1: 2^24 is halved nine times, since 2^16 is beyond fp16 and 2^15 is not."""
    lines = dict(line.split(":") for line in python_output.splitlines() if ":" in line)
    assert float(lines["current_scale"]) == 2.0**24
    assert int(lines["total_skips"]) == 9
    assert int(lines["scale_changes"]) == 18
    assert [float(scale) for scale in lines["recent_scales"].split()] == [2.0**power for power in range(15, 25)]
    assert float(python_output.split("final loss")[1]) < 1e-5


def test_the_cpp_program_prints_the_same(python_output):
    if not PROGRAM.exists():
        pytest.skip(f"the package under test comes without the C++ examples: no {PROGRAM.name}")
    assert output_of(str(PROGRAM)) == python_output
