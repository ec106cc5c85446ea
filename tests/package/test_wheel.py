"""The wheel is the install prefix of CMake, and knows nothing of the machine that built it."""

import pathlib

import pytest

from package_tools import REPOSITORY, SITE_PACKAGES, TORCH_DIR, run


def test_the_wheel_is_the_install_prefix(wheel_names, build_folder, work_folder):
    prefix = work_folder / "prefix/ampscaler"
    run(["cmake", "--install", build_folder, "--prefix", prefix], work_folder)
    files = {str(f.relative_to(prefix.parent)) for f in prefix.rglob("*") if f.is_file()}
    assert {name for name in wheel_names if name.startswith("ampscaler/")} == files


@pytest.mark.parametrize(
    "name",
    [
        "lib/libampscaler.so",
        "include/ampscaler/ampscaler.h",
        "share/cmake/AmpScaler/AmpScalerConfig.cmake",
        "share/cmake/AmpScaler/AmpScalerTorch.cmake",
        "_load.py",
        "_build_info.py",
        "conformance/__main__.py",
        "conformance/contract/s01_names.py",
        "conformance/random/__init__.py",
        "py.typed",
    ],
)
def test_the_wheel_holds(wheel_names, name):
    assert f"ampscaler/{name}" in wheel_names


def test_the_wheel_is_for_one_platform_and_python(wheel):
    assert "-cp3" in wheel.name
    assert wheel.name.endswith("-linux_x86_64.whl")


def test_the_wheel_holds_one_module_beside_the_library(wheel_names):
    libraries = {pathlib.Path(name).name.split(".")[0] for name in wheel_names if ".so" in name}
    assert libraries == {"libampscaler", "_C"}


@pytest.mark.parametrize("pattern", ["*.so", "*.cmake", "*.h", "*.py"])
def test_no_path_of_the_build_machine(prefix, build_folder, pattern):
    # -ffile-prefix-map keeps them out of TORCH_CHECK messages, imported targets out of the exports.
    places = {REPOSITORY, build_folder, TORCH_DIR, SITE_PACKAGES, pathlib.Path.home()}
    files = list(prefix.rglob(pattern))
    assert files
    found = [(f.name, p) for f in files for p in places if f"{p}/".encode() in f.read_bytes()]
    assert not found


def test_making_the_wheel_recompiles_nothing(wheel_log, build_folder):
    # AMPSCALER_BUILD_DIR: the folder of `make build` is taken as it is, its options stay.
    assert "ninja: no work to do" in wheel_log
    cache = (build_folder / "CMakeCache.txt").read_text()
    assert "AMPSCALER_EDITABLE:BOOL=OFF" in cache
    assert "AMPSCALER_TESTS:BOOL=ON" in cache


def test_exported_targets_name_no_absolute_path(prefix):
    folder = prefix / "share/cmake/AmpScaler"
    exports = list(folder.glob("AmpScalerTargets*.cmake"))
    assert len(exports) == 2
    for export in exports:
        for mark in ('"/', ";/"):
            for line in export.read_text().splitlines():
                assert mark not in line or '_IMPORT_PREFIX STREQUAL "/"' in line
