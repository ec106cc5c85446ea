"""The wheel in a clean environment: it imports, steps, and loads one CUDA runtime, torch's own."""

import subprocess
import sys

import pytest

from package_tools import run

STEP = """
import torch, ampscaler
weight = torch.ones(2, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.5)
scaler = ampscaler.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
scaler.scale((weight * 2).sum()).backward()
scaler.step(optimizer)
scaler.update()
print("weight", weight.tolist(), "scale", scaler.get_scale())
print("file", ampscaler.__file__)
print("cmake", ampscaler.cmake_prefix_path)
for line in open("/proc/self/maps"):
    if "libcudart" in line or "libampscaler" in line:
        print("loaded", line.split()[-1])
"""


@pytest.fixture(scope="module")
def report(installed):
    return run([installed, "-c", STEP], installed.parent).splitlines()


def test_it_trains(report):
    assert "weight [0.0, 0.0] scale 2048.0" in report


def test_the_conformance_suite_gives_the_same_table(installed, tmp_path):
    """As here, from an empty folder and without the repository."""
    for name in ("ampscaler:GradScaler", "ampscaler:AmpScaler"):
        arguments = ["-m", "ampscaler.conformance", "--scaler", name]
        here = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout
        assert "    all  " in here
        assert run([installed, *arguments], tmp_path) == here


def test_it_is_the_one_in_the_environment(report, installed):
    environment = installed.parent.parent
    where = next(line for line in report if line.startswith("file "))
    assert str(environment) in where
    assert "site-packages/ampscaler" in where


def test_it_tells_cmake_where_it_is(report, installed):
    line = next(line for line in report if line.startswith("cmake "))
    assert line.endswith("site-packages/ampscaler/share/cmake")


def test_one_library_of_each_kind_is_loaded(report, cuda_major):
    loaded = {line.split()[1] for line in report if line.startswith("loaded ")}
    assert len([path for path in loaded if "libampscaler" in path]) == 1
    cudart = [path for path in loaded if "libcudart" in path]
    assert all("/site-packages/nvidia/" in path for path in cudart)
    assert len(cudart) == 1 or not cuda_major
