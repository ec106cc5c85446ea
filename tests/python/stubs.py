"""Generates python/ampscaler/_C.pyi from the built module; `make stubs` writes it, a test compares it."""

import pathlib
import re
import subprocess
import sys
import tempfile

STUB = pathlib.Path(__file__).parents[2] / "python/ampscaler/_C.pyi"


# What the generator cannot know: members of a native enum, and the types inside containers.
CORRECTIONS = [
    (r" *def __reduce_ex__\(self, \*args\) -> None:\s*\.\.\.\n", ""),  # it only refuses
    (r"(\w+): typing\.ClassVar\[StepOutcome\]", r"\1 = ..."),
    (r" *@classmethod\n *def __new__\(cls, value\):\s*\.\.\.\n", ""),
    (r"\bdict\b(?!\[)(?=[:,)\s])(?! \w)", "dict[str, typing.Any]"),
    (r"\*args, \*\*kwargs\) ->", "*args: typing.Any, **kwargs: typing.Any) ->"),
]


def generate() -> str:
    """The stub of the module that PYTHONPATH offers."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pybind11_stubgen", "ampscaler._C", "-o", folder]
        subprocess.run(command, check=True, capture_output=True, text=True)
        text = (pathlib.Path(folder) / "ampscaler/_C.pyi").read_text()
    for pattern, replacement in CORRECTIONS:
        text = re.sub(pattern, replacement, text)
    formatter = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    return subprocess.run(formatter, input=text, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        STUB.write_text(generate())
    else:
        sys.exit("usage: stubs.py --write")
