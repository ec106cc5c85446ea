"""The expensive steps, once per run: a wheel, a clean environment, an install prefix.

All of it lies in build/package-test-*, on the file system of the environment, and is removed.
"""

import os
import pathlib
import re
import shutil
import sys
import zipfile

import pytest

from package_tools import REPOSITORY, SITE_PACKAGES, copy_project, hard_link_tree, run


@pytest.fixture(scope="session")
def build_folder():
    """The folder of `make build`; nothing in it is changed."""
    given = os.environ.get("AMPSCALER_BUILD_DIR")
    assert given, "run these tests with `make test-package`: it sets AMPSCALER_BUILD_DIR"
    return pathlib.Path(given).resolve()


@pytest.fixture(scope="session")
def work_folder(build_folder):
    # Always the same path, so that ccache knows what is compiled here.
    folder = build_folder.parent / f"package-test-{build_folder.name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def project(work_folder):
    """A throw-away copy of the repository: pip writes into the folder that it installs from."""
    return copy_project(work_folder / "project")


@pytest.fixture(scope="session")
def clean_python(project):
    """Python of an environment that holds torch but not ampscaler, at the usual place .venv."""
    root = project / ".venv"
    run([sys.executable, "-m", "venv", "--without-pip", root], project)
    site_packages = root / SITE_PACKAGES.relative_to(sys.prefix)
    site_packages.rmdir()
    hard_link_tree(SITE_PACKAGES, site_packages)
    for left in [*site_packages.glob("ampscaler*"), *site_packages.glob("__editable__*ampscaler*")]:
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    return root / "bin/python"


@pytest.fixture(scope="session")
def wheel_log(project, build_folder, work_folder):
    """Output of making the wheel from the build folder."""
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-build-isolation", "--no-deps"]
    variables = {"AMPSCALER_BUILD_DIR": str(build_folder), "CCACHE_BASEDIR": str(REPOSITORY)}
    return run([*command, "--verbose", "--wheel-dir", work_folder], project, **variables)


@pytest.fixture(scope="session")
def wheel(wheel_log, work_folder):
    return next(work_folder.glob("ampscaler-*.whl"))


@pytest.fixture(scope="session")
def prefix(wheel, work_folder):
    """ampscaler as a plain install prefix, without torch beside it."""
    target = work_folder / "target"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", target, wheel]
    run(command, work_folder)
    return target / "ampscaler"


@pytest.fixture(scope="session")
def wheel_names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="session")
def cuda_major(prefix):
    """CUDA major version of the build under test, "" for a CPU build."""
    text = (prefix / "_build_info.py").read_text()
    return re.search(r'CUDA_MAJOR = "(.*)"', text).group(1)


@pytest.fixture(scope="session")
def cuda_mode(build_folder):
    """AMPSCALER_CUDA of the build folder, for builds from source of the same kind."""
    text = (build_folder / "CMakeCache.txt").read_text()
    return re.search(r"^AMPSCALER_CUDA:STRING=(.*)$", text, re.MULTILINE).group(1)


@pytest.fixture(scope="module")
def installed(clean_python, wheel):
    """Python of the clean environment with the wheel in it: ampscaler is torch's sibling."""
    folder = clean_python.parent
    run([clean_python, "-m", "pip", "install", "--no-index", wheel], folder)
    yield clean_python
    run([clean_python, "-m", "pip", "uninstall", "--yes", "ampscaler"], folder)
