"""In an environment without torch, pip shows one sentence of ours."""

import sys

import pytest

from package_tools import SITE_PACKAGES, attempt, hard_link_tree, run

SENTENCE = "install torch, then `pip install --no-build-isolation .`"


@pytest.fixture(scope="module")
def python_without_torch(work_folder):
    root = work_folder / "without-torch"
    run([sys.executable, "-m", "venv", "--without-pip", root], work_folder)
    site_packages = root / SITE_PACKAGES.relative_to(sys.prefix)
    for pattern in ("pip", "setuptools", "setuptools-*", "_distutils_hack", "wheel", "wheel-*"):
        for source in SITE_PACKAGES.glob(pattern):
            hard_link_tree(source, site_packages / source.name)
    return root / "bin/python"


@pytest.mark.parametrize("options", [["."], ["-e", "."]])
def test_pip_says_what_to_do(python_without_torch, project, options):
    command = [python_without_torch, "-m", "pip", "install", *options]
    result = attempt([*command, "--no-build-isolation", "--no-index"], project)
    assert result.returncode != 0
    assert f"[1 lines of output]\n      {SENTENCE}\n" in result.stdout
