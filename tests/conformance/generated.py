"""What the two generators of files share: `--write` writes the file, nothing prints the text."""

import pathlib
import sys
from collections.abc import Callable


def run(file: pathlib.Path, generate: Callable[[], str]) -> None:
    """The main program of a generator."""
    text = generate()
    if sys.argv[1:] == ["--write"]:
        file.write_text(text)
    else:
        print(text, end="")
