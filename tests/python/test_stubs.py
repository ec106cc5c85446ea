"""The type stub of _C is what the built module offers; `make stubs` brings it up to date."""

import pytest

import stubs


@pytest.mark.default_torch  # pybind11, which comes inside torch, words stubs otherwise in each version
def test_the_stub_is_up_to_date():
    assert stubs.STUB.read_text() == stubs.generate()
