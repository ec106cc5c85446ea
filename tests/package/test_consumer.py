"""An outside C++ project builds and runs against ampscaler, in both layouts.

Sibling: the wheel in an environment, beside torch. Prefix: ampscaler alone, the user names torch.
"""

import os
import pathlib
import re
import shutil

import pytest
import torch

from package_tools import TORCH_DIR, attempt, build_consumer, check_consumer, run

ORDERS = ["none", "before", "after"]
TORCH_CONFIG = f"-DTorch_DIR={TORCH_DIR}/share/cmake/Torch"


def skip_without_toolkit(order):
    """find_package(Torch) of a CUDA torch stops without a toolkit; ours never asks for one."""
    homes = [pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")), pathlib.Path("/usr")]
    toolkit = shutil.which("nvcc") or any((home / "bin/nvcc").exists() for home in homes)
    if order != "none" and torch.version.cuda and not toolkit:
        pytest.skip("find_package(Torch) of a CUDA torch needs a CUDA toolkit, none is here")


@pytest.fixture(scope="module", params=ORDERS)
def sibling_consumer(request, installed, work_folder):
    skip_without_toolkit(request.param)
    command = [installed, "-c", "import ampscaler; print(ampscaler.cmake_prefix_path)"]
    where = run(command, work_folder).strip()
    options = [f"-DCMAKE_PREFIX_PATH={where}", f"-DCONSUMER_TORCH={request.param}"]
    if request.param != "none":
        options.append(f"-DTorch_DIR={where}/../../../torch/share/cmake/Torch")
    return build_consumer(work_folder / f"sibling-{request.param}", *options)


@pytest.fixture(scope="module", params=ORDERS)
def prefix_consumer(request, prefix, work_folder):
    skip_without_toolkit(request.param)
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCONSUMER_TORCH={request.param}"]
    options.append(f"-DAMPSCALER_TORCH_DIR={TORCH_DIR}")
    if request.param != "none":
        options.append(TORCH_CONFIG)
    return build_consumer(work_folder / f"prefix-{request.param}", *options)


def test_beside_torch(sibling_consumer):
    check_consumer(sibling_consumer)


def test_away_from_torch(prefix_consumer):
    check_consumer(prefix_consumer)


def check_only_torchs_cudart(program):
    """Without the system's library cache, as on a machine that has no CUDA toolkit."""
    loader = ["/lib64/ld-linux-x86-64.so.2", "--inhibit-cache"]
    listed = run([*loader, "--list", program], program.parent)
    assert "not found" not in listed
    found = re.findall(r"libcudart\S* => (\S+)", listed)
    assert [pathlib.Path(path).parent.resolve().parts[-3:] for path in found] == [("nvidia", "cu13", "lib")]
    assert attempt([*loader, program], program.parent).returncode == 0


def test_beside_torch_the_program_loads_torchs_cudart(sibling_consumer, cuda_major):
    if not cuda_major:
        pytest.skip("the build under test has no CUDA kernels")
    check_only_torchs_cudart(sibling_consumer / "scaler_step")


def test_away_from_torch_the_program_loads_torchs_cudart(prefix_consumer, cuda_major):
    if not cuda_major:
        pytest.skip("the build under test has no CUDA kernels")
    check_only_torchs_cudart(prefix_consumer / "scaler_step")
