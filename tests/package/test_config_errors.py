"""What find_package(AmpScaler) says when torch is missing or another one."""

import pytest

from package_tools import TORCH_DIR, configure_consumer, sentence

NOT_FOUND = (
    "torch was not found; pass -DAMPSCALER_TORCH_DIR=<folder with torch's lib and include>, "
    "for a Python torch: python -c 'import torch, pathlib; "
    "print(pathlib.Path(torch.__file__).parent)'"
)


@pytest.fixture
def configure(prefix, tmp_path):
    def attempt_with(*options):
        where = f"-DCMAKE_PREFIX_PATH={prefix}"
        return configure_consumer(tmp_path / "build", where, *options)

    return attempt_with


@pytest.fixture
def other_torch(tmp_path):
    """Makes a folder that looks like torch, with the given text as its version header."""

    def make(header):
        folder = tmp_path / "other"
        (folder / "lib").mkdir(parents=True)
        (folder / "lib/libtorch_cpu.so").touch()
        if header is not None:
            (folder / "include/torch/headeronly").mkdir(parents=True)
            (folder / "include/torch/headeronly/version.h").write_text(header)
        return folder

    return make


def test_no_torch(configure):
    result = configure()
    assert result.returncode != 0
    assert NOT_FOUND in sentence(result.stdout)


def test_a_wrong_folder_is_not_replaced_by_another(configure, tmp_path):
    result = configure(f"-DAMPSCALER_TORCH_DIR={tmp_path}", f"-DTorch_DIR={TORCH_DIR}/share/cmake/Torch")
    assert result.returncode != 0
    assert NOT_FOUND in sentence(result.stdout)


def test_torch_of_another_version(configure, other_torch):
    folder = other_torch('#define TORCH_VERSION \\\n  "2.3.1"\n')
    result = configure(f"-DAMPSCALER_TORCH_DIR={folder}")
    assert result.returncode != 0
    assert f"but {folder} holds torch 2.3; rebuild ampscaler with that torch or pass" in sentence(result.stdout)


def test_torch_too_old_to_tell_its_version(configure, other_torch):
    folder = other_torch(None)
    result = configure(f"-DAMPSCALER_TORCH_DIR={folder}")
    assert result.returncode != 0
    header = f"{folder}/include/torch/headeronly/version.h"
    assert f"{folder} holds torch without {header}; rebuild ampscaler" in sentence(result.stdout)


@pytest.mark.parametrize("option", [f"AMPSCALER_TORCH_DIR={TORCH_DIR}", f"Torch_DIR={TORCH_DIR}/share/cmake/Torch"])
def test_ways_to_name_torch(configure, option):
    result = configure(f"-D{option}")
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("folder", [TORCH_DIR, TORCH_DIR / "share/cmake"])
def test_torch_on_the_prefix_path(prefix, tmp_path, folder):
    where = f"-DCMAKE_PREFIX_PATH={prefix};{folder}"
    result = configure_consumer(tmp_path / "build", where)
    assert result.returncode == 0, result.stdout
