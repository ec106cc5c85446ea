"""ampscaler and a consumer against a plain LibTorch folder: lib and include, no Python."""

import pytest

from package_tools import (
    SITE_PACKAGES,
    TORCH_DIR,
    build_consumer,
    check_consumer,
    copy_project,
    dynamic_section,
    hard_link_tree,
    run,
)


@pytest.fixture(scope="module")
def libtorch_project(work_folder):
    return copy_project(work_folder / "libtorch-project")


@pytest.fixture(scope="module")
def libtorch(libtorch_project):
    """Laid out like the archive: the libraries that torch needs lie beside it, cudart included.

    The name of the folder is what the compiler sees in the other builds, for the sake of ccache.
    """
    folder = libtorch_project / ".venv/lib" / SITE_PACKAGES.parent.name / "site-packages/torch"
    hard_link_tree(TORCH_DIR / "include", folder / "include")
    (folder / "lib").mkdir()
    for library in [*TORCH_DIR.glob("lib/*.so*"), *SITE_PACKAGES.glob("nvidia/*/lib/*.so*")]:
        if "python" not in library.name:
            (folder / "lib" / library.name).hardlink_to(library)
    return folder


@pytest.fixture(scope="module")
def prefix_without_python(libtorch_project, libtorch, cuda_mode):
    folder = libtorch_project / "build/libtorch"
    options = {
        "AMPSCALER_PYTHON": "OFF",
        "AMPSCALER_TORCH_DIR": libtorch,
        "AMPSCALER_CUDA": cuda_mode,
    }
    flags = [f"-D{name}={value}" for name, value in options.items()]
    run(["cmake", "-S", ".", "-B", folder, *flags], libtorch_project)
    run(["cmake", "--build", folder], libtorch_project)
    prefix = libtorch_project / "prefix"
    run(["cmake", "--install", folder, "--prefix", prefix], libtorch_project)
    return prefix


def test_a_consumer_of_the_wheel(prefix, libtorch, work_folder):
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DAMPSCALER_TORCH_DIR={libtorch}"]
    check_consumer(build_consumer(work_folder / "libtorch-wheel", *options))


def test_a_consumer_of_a_build_without_python(prefix_without_python, libtorch, work_folder):
    options = [f"-DCMAKE_PREFIX_PATH={prefix_without_python}", f"-DAMPSCALER_TORCH_DIR={libtorch}"]
    check_consumer(build_consumer(work_folder / "libtorch-build", *options))


def test_a_build_without_python_installs_no_python(prefix_without_python):
    assert not list(prefix_without_python.rglob("*.py"))
    assert not list(prefix_without_python.glob("_C*"))


def test_a_build_without_python_needs_none(prefix_without_python):
    needed = dynamic_section(prefix_without_python / "lib/libampscaler.so", "NEEDED")
    assert not [name for name in needed if "python" in name]
