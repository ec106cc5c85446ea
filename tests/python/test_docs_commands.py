"""The commands of the three pages on training work: each is run, in a copy of the programs, as a reader would.

The copy takes what a command writes, so that nothing lands in the checkout.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import ampscaler

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE_PATH = pathlib.Path(ampscaler.__file__).parents[1]
PAGES = ("manager", "mixed_precision_experiment", "when_mixed_precision_does_not_fit")


def commands_of(page):
    """The commands of a page's bash blocks, without comments, continued lines joined."""
    text = (ROOT / f"docs/{page}.md").read_text()
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := tuple(shlex.split(line, comments=True)))]


COMMANDS = list(dict.fromkeys(command for page in PAGES for command in commands_of(page)))
PYTHON_COMMANDS = [command for command in COMMANDS if command[0] == "python"]


@pytest.mark.parametrize("page", PAGES)
def test_each_page_has_commands(page):
    assert commands_of(page)


def test_commands_are_python_or_targets_of_make():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)
    for command in COMMANDS:
        if command[0] == "make":
            assert [word for word in command[1:] if "=" not in word and word not in targets] == [], command
        else:
            assert command[0] == "python", command


@pytest.fixture(scope="module")
def copied_root(tmp_path_factory):
    """A folder with the programs, where commands may write; one for all, since some read what another wrote."""
    root = tmp_path_factory.mktemp("checkout")
    for folder in ("examples", "benchmarks"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.mark.parametrize("command", PYTHON_COMMANDS, ids=" ".join)
def test_a_command_succeeds(command, copied_root):
    # Offline: what a command does may not depend on whether a model hub can be reached today.
    environment = os.environ | {"PYTHONPATH": str(PACKAGE_PATH), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, *command[1:]],
        cwd=copied_root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
