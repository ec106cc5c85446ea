"""Shared by all Python tests: the rule for tests that need a CUDA device, and seeded randomness."""

import os

import pytest
import torch

from ampscaler import _C


def missing_for_cuda():
    """Why a test marked `cuda` cannot run here; None if it can."""
    if not _C.has_unscale_kernel("cuda"):
        return "this build has no CUDA kernels"
    return None if torch.cuda.is_available() else "no CUDA device on this machine"


def pytest_runtest_setup(item):
    reason = missing_for_cuda() if "cuda" in item.keywords else None
    if reason and os.environ.get("AMPSCALER_REQUIRE_CUDA") == "1":
        pytest.fail(f"AMPSCALER_REQUIRE_CUDA=1, but {reason}")
    elif reason:
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1234)
