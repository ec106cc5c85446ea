"""docs/gradients.md stays true: its examples run, in order, and what it lists exists."""

import pathlib
import re

import torch

import ampscaler

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs/gradients.md").read_text()


def test_the_examples_run():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 7
    names: dict[str, object] = {}
    exec(compile("\n".join(blocks), "docs/gradients.md", "exec"), names)
    assert isinstance(names["norm"], torch.Tensor) and names["norm"] > 1.0, "the clip of the example binds"
    assert isinstance(names["penalty"], torch.Tensor) and names["penalty"] > 0.0


def test_the_table_of_what_is_mended_is_what_is_tested():
    listed = re.findall(r"^\| (W\d+) \|", PAGE, re.MULTILINE)
    tests = (ROOT / "tests/python").glob("test_fix_upstream*.py")
    tested = {name for path in tests for name in re.findall(r"def test_(w\d+)_", path.read_text())}
    assert {name.lower() for name in listed} == tested and len(listed) == len(tested)


def test_methods_and_values_that_are_named_exist():
    for name in re.findall(r"`(\w+)\((?:optimizer|grads)", PAGE):
        assert hasattr(ampscaler.GradScaler, name), name
    for mode in re.findall(r'^\| `"(\w+)"`', PAGE, re.MULTILINE):
        ampscaler.GradScaler("cpu", fp16_grads=mode)
