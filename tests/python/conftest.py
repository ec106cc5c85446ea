"""Shared by all Python tests: the rule for tests that need a CUDA device, and seeded randomness."""

import os

import pytest
import torch


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    reason = "no CUDA device on this machine"
    for item in items:
        if "cuda" not in item.keywords:
            continue
        if os.environ.get("AMPSCALER_REQUIRE_CUDA") == "1":
            item.add_marker(pytest.mark.usefixtures("missing_cuda_device"))
        else:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def missing_cuda_device():
    pytest.fail("AMPSCALER_REQUIRE_CUDA=1, but there is no CUDA device")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1234)
