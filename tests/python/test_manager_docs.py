"""docs/manager.md stays true: its program is the one that runs, its commands work, its tables name what exists."""

import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest

import ampscaler
from manager_cases import make

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs/manager.md").read_text()
PROGRAM = ROOT / "examples/python/manager.py"


def test_the_page_shows_the_program_that_runs():
    ((source, code),) = re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert ROOT / source == PROGRAM
    assert PROGRAM.read_text().endswith(f'"""\n\n{code}')


def test_the_program_learns_and_the_scale_stops_at_its_cap():
    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(ampscaler.__file__).parents[1])}
    command = [sys.executable, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"final loss ([\d.e+-]+)", done.stdout).group(1)) < 0.05
    assert "'current_scale': 262144.0" in done.stdout
    skips = int(re.search(r"'total_skips': (\d+)", done.stdout).group(1))
    assert done.stdout.count("the step was skipped") == skips


def table(heading):
    """The names in the first column of the table in that section."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_the_table_of_options_is_the_constructor():
    assert table("Options") == list(inspect.signature(ampscaler.RobustAMPManager).parameters)


def test_the_table_of_diagnostics_is_complete():
    assert table("Reading the diagnostics") == list(make().get_diagnostics())


@pytest.mark.parametrize("name", ["init_scale", "growth_factor", "backoff_factor", "growth_interval"])
def test_the_defaults_in_the_table_are_those_of_the_constructor(name):
    default = inspect.signature(ampscaler.RobustAMPManager).parameters[name].default
    assert f"| `{name}` | {default:g} |" in PAGE


def test_the_documented_number_of_overflows_takes_the_scale_to_zero():
    manager = make(init_scale=65536.0)
    scaler = manager.scaler
    for count in range(1, 167):
        manager.training_step(manager.model.weight.new_full((1,), float("inf")), None, lambda x, _: x.sum(), count)
        assert (scaler.get_scale() == 0.0) == (count == 166)
    assert "to 0 after 166 steps from 65536" in PAGE
