"""The type stub of _C is what the built module offers; `make stubs` brings it up to date."""

import pathlib
import re

import pytest
import torch

import stubs

MAKEFILE = pathlib.Path(__file__).parents[2] / "Makefile"


def test_the_stub_is_up_to_date():
    default_torch = re.search(r"^DEFAULT_TORCH := (\S+)", MAKEFILE.read_text(), re.MULTILINE).group(1)
    if torch.__version__.split("+")[0] != default_torch:
        pytest.skip(f"the stub is written with the pybind11 inside torch {default_torch}, which words them otherwise")
    assert stubs.STUB.read_text() == stubs.generate()
