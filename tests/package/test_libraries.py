"""What libampscaler.so and _C link, and where they look for it."""

import re

import pytest

from package_tools import REPOSITORY, dynamic_section, run


@pytest.fixture(scope="session")
def library(prefix):
    return prefix / "lib/libampscaler.so"


@pytest.fixture(scope="session")
def module(prefix):
    return next(prefix.glob("_C.*.so"))


@pytest.fixture
def needs_cuda_build(cuda_major):
    if not cuda_major:
        pytest.skip("the build under test has no CUDA kernels")


def test_the_library_needs_no_python(library):
    assert not [name for name in dynamic_section(library, "NEEDED") if "python" in name]


def test_the_module_leaves_python_to_the_interpreter(module):
    needed = dynamic_section(module, "NEEDED")
    assert "libampscaler.so" in needed
    assert "libtorch_python.so" in needed
    assert not [name for name in needed if name.startswith("libpython")]


def test_the_library_finds_torch_and_its_cudart_as_siblings(library):
    # The second folder: a program without Python would else load a toolkit's libcudart, or none.
    assert dynamic_section(library, "RUNPATH") == [
        "$ORIGIN/../../torch/lib",
        "$ORIGIN/../../nvidia/cu13/lib",
    ]


def test_the_module_finds_the_library_and_torch(module):
    assert dynamic_section(module, "RUNPATH") == ["$ORIGIN/lib", "$ORIGIN/../torch/lib"]


def test_a_cpu_build_needs_no_cuda(library, cuda_major):
    if cuda_major:
        pytest.skip("the build under test has CUDA kernels")
    assert not [name for name in dynamic_section(library, "NEEDED") if "cuda" in name]


def test_a_cuda_build_keeps_the_cuda_libraries(library, needs_cuda_build):
    # libtorch_cuda has no symbol of ours: --as-needed would drop it, and torch's kernels with it.
    needed = dynamic_section(library, "NEEDED")
    assert {"libtorch_cuda.so", "libc10_cuda.so", "libcudart.so.13"} <= set(needed)
    assert not [name for name in needed if "nvrtc" in name]


def test_the_cuda_runtime_is_not_linked_statically(library, build_folder, needs_cuda_build):
    # CMake's default adds libcudart_static to the link line, beside the runtime that torch loads.
    assert "cudart_static" not in (build_folder / "build.ninja").read_text()
    symbols = run(["readelf", "--dyn-syms", "--wide", library], library.parent)
    assert re.search(r"UND __cudaRegisterFatBinary@libcudart\.so", symbols)


@pytest.mark.parametrize("inner", ["4core", "4cuda"])
def test_inner_functions_are_not_exported(library, inner):
    symbols = run(["readelf", "--dyn-syms", "--wide", library], library.parent)
    assert not re.findall(rf" \S+ _ZNK?9ampscaler{inner}\S*", symbols)


def test_operators_are_declared_once():
    pattern = re.compile(r"^TORCH_LIBRARY(_FRAGMENT)?\(", re.MULTILINE)
    files = [f for f in (REPOSITORY / "csrc").rglob("*.*") if pattern.search(f.read_text())]
    assert [f.name for f in files] == ["schemas.cpp"]


def test_the_module_registers_no_operator(module):
    symbols = run(["readelf", "--dyn-syms", "--wide", module], module.parent)
    assert "torch7Library" not in symbols
