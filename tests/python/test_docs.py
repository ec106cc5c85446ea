"""Documentation stays true: README shows the example programs, those run, links resolve, the map names what exists."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import ampscaler

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BUILD = pathlib.Path(ampscaler.__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def quoted_programs():
    """(file, code) of each block of README that names its source."""
    return re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)```", README, re.DOTALL)


def test_readme_quotes_both_languages():
    assert [source for source, _ in quoted_programs()] == [
        "examples/python/minimal.py",
        "examples/cpp/minimal.cpp",
    ]


@pytest.mark.parametrize(("source", "code"), quoted_programs())
def test_readme_shows_the_program_that_runs(source, code):
    assert code.strip("\n") in (ROOT / source).read_text()
    assert len([line for line in code.splitlines() if line.strip()]) <= 15


def run(*command):
    environment = os.environ | {"PYTHONPATH": str(BUILD / "stage")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def final_loss(output):
    return float(re.search(r"final loss ([\d.e+-]+)", output).group(1))


def test_the_python_program_learns():
    assert final_loss(run(sys.executable, str(ROOT / "examples/python/minimal.py"))) < 0.01


def test_the_cpp_program_learns():
    program = BUILD / "examples/cpp/minimal"
    if not program.exists():
        pytest.skip(f"the package under test comes without the C++ examples: no {program}")
    assert final_loss(run(str(program))) < 0.01


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_our_own_files_resolve(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_folders_that_are_named_exist(page):
    for name in re.findall(r"`((?:csrc|python|tests|examples|benchmarks|cmake|docs)(?:/[\w./]+)?)`", page.read_text()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_that_are_named_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_map_names_every_source_folder():
    for folder in (ROOT / "csrc").iterdir():
        if folder.is_dir():
            name = {"include": "csrc/include/ampscaler"}.get(folder.name, f"csrc/{folder.name}")
            assert f"`{name}`" in README, name
