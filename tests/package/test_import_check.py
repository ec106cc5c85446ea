"""A build for another torch is an ImportError that says what to do, before anything is loaded."""

import re
import shutil
import sys

import pytest
import torch

from ampscaler._load import mismatch
from package_tools import attempt

FIX = (
    "Rebuild it for the installed torch, in ampscaler's source folder: "
    "pip install --no-build-isolation --force-reinstall --no-deps ."
)


@pytest.mark.parametrize(
    ("running", "running_cuda", "built", "built_cuda"),
    [
        ("2.15.0", "13.2", "2.15.0", "13"),
        ("2.15.0+cu132", "13.2", "2.15.0", "13"),
        ("2.15.1", "13.0", "2.15.0", "13"),
        ("2.15.0+cpu", None, "2.15.0", ""),
        ("2.15.0", "12.8", "2.15.0", ""),
    ],
)
def test_these_fit(running, running_cuda, built, built_cuda):
    assert mismatch(running, running_cuda, built, built_cuda) is None


@pytest.mark.parametrize("running", ["2.11.0", "2.16.0", "3.15.0", "2.150.0"])
def test_another_minor_version_of_torch(running):
    assert mismatch(running, "13.2", "2.15.0", "13") == (
        f"ampscaler was built with torch 2.15.0, but torch {running} is installed. {FIX}"
    )


@pytest.mark.parametrize(
    ("running_cuda", "found"),
    [("12.8", "CUDA 12.8"), ("14.0", "CUDA 14.0"), ("1.3", "CUDA 1.3"), (None, "no CUDA")],
)
def test_another_major_version_of_cuda(running_cuda, found):
    assert mismatch("2.15.0", running_cuda, "2.15.0", "13") == (
        f"ampscaler was built with CUDA 13, but the installed torch has {found}. {FIX}"
    )


def import_of_a_build_for(prefix, folder, **facts):
    """Output of an import whose _build_info says other facts; there is no library to load."""
    package = folder / "ampscaler"
    shutil.copytree(prefix, package, ignore=shutil.ignore_patterns("*.so"))
    text = (package / "_build_info.py").read_text()
    for name, value in facts.items():
        text = re.sub(rf'^{name} = ".*"$', f'{name} = "{value}"', text, flags=re.MULTILINE)
    (package / "_build_info.py").write_text(text)
    command = [sys.executable, "-c", "import ampscaler"]
    return attempt(command, folder, PYTHONPATH=str(folder)).stdout.splitlines()[-1]


def test_importing_a_build_for_another_torch(prefix, tmp_path):
    assert import_of_a_build_for(prefix, tmp_path, TORCH_VERSION="2.3.0") == (
        f"ImportError: ampscaler was built with torch 2.3.0, but torch {torch.__version__} is installed. {FIX}"
    )


def test_importing_a_build_for_another_cuda(prefix, tmp_path):
    found = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    assert import_of_a_build_for(prefix, tmp_path, CUDA_MAJOR="12") == (
        f"ImportError: ampscaler was built with CUDA 12, but the installed torch has {found}. {FIX}"
    )
