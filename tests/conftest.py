"""Shared by all Python tests: the rules for tests of CUDA and of files generated with the default torch; the seed."""

import os
import pathlib
import re

import pytest
import torch


def missing_for_cuda():
    """Why a test marked `cuda` cannot run here; None if it can."""
    from ampscaler import _C  # the package tests bring an ampscaler of their own

    if not _C.has_unscale_kernel("cuda"):
        return "this build has no CUDA kernels"
    return None if torch.cuda.is_available() else "no CUDA device on this machine"


def other_torch():
    """The torch under test, if it is not the one that the generated files in the repository are written with."""
    makefile = (pathlib.Path(__file__).parents[1] / "Makefile").read_text()
    default = re.search(r"^DEFAULT_TORCH := (\S+)", makefile, re.MULTILINE).group(1)
    return None if torch.__version__.split("+")[0] == default else f"torch {torch.__version__}, not {default}"


def cuda_is_required():
    """Whether a test that cannot run for want of CUDA has failed. Refused is what might be meant as a yes."""
    value = os.environ.get("AMPSCALER_REQUIRE_CUDA", "")
    if value not in ("", "0", "1"):
        raise pytest.UsageError(f"AMPSCALER_REQUIRE_CUDA: expected 0 or 1, got {value!r}")
    return value == "1"


def pytest_configure(config):
    cuda_is_required()


def pytest_runtest_setup(item):
    if "default_torch" in item.keywords and other_torch():
        pytest.skip(f"the file is generated with another torch: this is {other_torch()}")
    reason = missing_for_cuda() if "cuda" in item.keywords else None
    if reason and cuda_is_required():
        pytest.fail(f"AMPSCALER_REQUIRE_CUDA=1, but {reason}")
    elif reason:
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1234)
