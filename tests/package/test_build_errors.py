"""Wishes that the build cannot meet are early, plain errors: CUDA settings, odd variables, missing tools."""

import os
import subprocess
import sys

import pytest

from package_tools import REPOSITORY, SITE_PACKAGES


def configure(folder, *options, **variables):
    """Output of a configure run that must fail, with nvcc hidden unless the variables say otherwise."""
    path = os.pathsep.join(
        entry for entry in os.environ["PATH"].split(os.pathsep) if not os.path.exists(os.path.join(entry, "nvcc"))
    )
    environment = {**os.environ, "PATH": path, **variables}
    environment.pop("CUDA_HOME", None)
    command = ["cmake", "-S", REPOSITORY, "-B", folder, "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, env=environment, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_an_unknown_cuda_mode_is_refused(tmp_path):
    status, output = configure(tmp_path, "-DAMPSCALER_CUDA=2")
    assert status != 0
    assert "AMPSCALER_CUDA must be 0, 1 or auto, got '2'" in output


def has_pypi_nvcc():
    return (SITE_PACKAGES / "nvidia/cu13/bin/nvcc").exists()


def test_insisting_on_cuda_without_nvcc_is_refused(tmp_path):
    if has_pypi_nvcc():
        pytest.skip("this environment brings an nvcc of its own")
    status, output = configure(tmp_path, "-DAMPSCALER_CUDA=1")
    assert status != 0
    assert "AMPSCALER_CUDA=1 cannot be met" in output
    assert "'make CUDA=pypi' brings one" in output


def test_without_nvcc_the_cpu_build_says_so(tmp_path):
    if has_pypi_nvcc():
        pytest.skip("this environment brings an nvcc of its own")
    status, output = configure(tmp_path, "-DAMPSCALER_CUDA=auto")
    assert status == 0
    assert "building for CPU only: torch uses CUDA" in output


def test_a_wrong_nvcc_is_refused(tmp_path):
    status, output = configure(tmp_path, "-DAMPSCALER_NVCC=/nowhere/nvcc")
    assert status != 0
    assert "AMPSCALER_NVCC=/nowhere/nvcc is no nvcc of CUDA 13" in output


def run_make(*arguments):
    done = subprocess.run(["make", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_an_unknown_source_of_cuda_is_refused():
    status, output = run_make("help", "CUDA=12")
    assert status != 0
    assert "CUDA=12: the only value is pypi" in output


def test_help_names_the_targets():
    status, output = run_make("help")
    assert status == 0
    for word in ("demo", "test", "lint", "TORCH=2.11.0", "AMPSCALER_CUDA", "CUDA=pypi"):
        assert word in output


def test_what_is_missing_is_named_in_one_sentence():
    command = ["sh", REPOSITORY / "cmake/prerequisites.sh", "no-such-python"]
    environment = {**os.environ, "CXX": "no-such-compiler"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "ampscaler cannot be built here, please install: a C++20 compiler (g++ 12 or newer; 'no-such-compiler' is "
        "none); Python >= 3.11 (make PYTHON=...).\n"
    )
