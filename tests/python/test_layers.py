"""The architecture as a test: who includes whom, file and function lengths, rules for every source file."""

import ast
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
CPP = {".h", ".cpp", ".cu", ".cuh"}

# What each folder of csrc may include of our own; docs/architecture.md draws the picture.
MAY_INCLUDE = {
    "csrc/core": {"core"},
    "csrc/include": {"ampscaler"},
    "csrc/ops": {"ampscaler", "core", "ops"},
    "csrc/kernels": {"ampscaler", "core", "ops", "kernels"},
    "csrc/optim": {"ampscaler", "core", "ops", "optim"},
    "csrc/scaler": {"ampscaler", "core", "ops", "optim", "scaler"},
    "csrc/bindings": {"ampscaler", "bindings"},
}
OUR_FOLDERS = {"ampscaler", "core", "ops", "kernels", "optim", "scaler", "bindings"}
TORCH_HEADERS = ("ATen/", "c10/", "torch/", "caffe2/")


def tracked_files():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.is_file()]


FILES = tracked_files()
SOURCES = [path for path in FILES if path.suffix in CPP | {".py"}]
CSRC = [path for path in FILES if path.suffix in CPP and path.is_relative_to(ROOT / "csrc")]


def name(path):
    return str(path.relative_to(ROOT))


def includes(path):
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def test_there_are_files_to_check():
    assert len(CSRC) > 30
    assert {name(path).split("/")[1] for path in CSRC} == {folder.split("/")[1] for folder in MAY_INCLUDE}


@pytest.mark.parametrize("path", CSRC, ids=name)
def test_includes_point_one_way(path):
    folder = "/".join(name(path).split("/")[:2])
    ours = {header.split("/")[0] for header in includes(path)} & OUR_FOLDERS
    assert ours <= MAY_INCLUDE[folder]
    assert not [header for header in includes(path) if ".." in header.split("/")]


# Compiled per instruction set or GPU architecture, or by tests without torch.
LOOPS = re.compile(r"csrc/kernels/cpu/(kernel|vector|block_stats|isa).*")
TORCH_FREE = [
    path
    for path in CSRC
    if path.is_relative_to(ROOT / "csrc/core") or path.suffix in {".cu", ".cuh"} or LOOPS.fullmatch(name(path))
]


@pytest.mark.parametrize("path", TORCH_FREE, ids=name)
def test_core_and_kernels_do_without_torch(path):
    assert not [header for header in includes(path) if header.startswith(TORCH_HEADERS)]
    assert not [header for header in includes(path) if header.startswith(("ampscaler/", "ops/"))]
    if path.is_relative_to(ROOT / "csrc/core"):
        assert not [header for header in includes(path) if "cuda" in header]


def test_schemas_are_registered_once():
    blocks = [path for path in CSRC if re.search(r"^TORCH_LIBRARY\(", path.read_text(), re.M)]
    assert [name(path) for path in blocks] == ["csrc/ops/schemas.cpp"]


def test_kernels_are_registered_through_the_one_signature():
    """By a cast, or because they are declared with it."""
    backends = (ROOT / "csrc/kernels/cuda/backends.h").read_text()
    declared = set(re.findall(r"^ops::\w+Function (\w+);$", backends, re.M))
    calls = [
        (path, call)
        for path in CSRC
        if path.is_relative_to(ROOT / "csrc/kernels")
        for call in re.findall(r"library\.impl\(.*?\)\s*;", path.read_text(), re.DOTALL)
    ]
    assert len(calls) > len(declared) > 0
    for path, call in calls:
        function = re.search(r"&(\w+)\)+;$", call)
        by_declaration = path.name == "register_cuda.cpp" and function is not None and function[1] in declared
        assert by_declaration or re.search(r"static_cast<ops::\w+Function\*>", call), (name(path), call)


def test_kernels_are_launched_in_one_place():
    launches = [path for path in CSRC if re.search(r"^[^/\n]*<<<", path.read_text(), re.M)]
    assert [name(path) for path in launches] == ["csrc/kernels/cuda/cuda_launcher.cuh"]


def test_torchs_streams_and_the_driver_are_asked_in_one_place():
    askers = [path for path in CSRC if any(re.match(r"(c10|ATen|torch)/.*cuda", header) for header in includes(path))]
    assert [name(path) for path in askers] == ["csrc/kernels/cuda/device_call.cpp"]


def test_cuda_backends_are_registered_in_one_place():
    found = [path for path in CSRC if re.search(r"^TORCH_LIBRARY_IMPL\(\w+, CUDA", path.read_text(), re.M)]
    assert [name(path) for path in found] == ["csrc/kernels/cuda/register_cuda.cpp"]
    of_cuda = [path for path in CSRC if path.is_relative_to(ROOT / "csrc/kernels/cuda")]
    assert [path for path in of_cuda if "TORCH_LIBRARY_IMPL" in path.read_text()] == found


def test_the_host_reads_devices_in_one_place():
    readers = [path for path in CSRC if re.search(r"\.item\(|\.item<|\.cpu\(\)", path.read_text())]
    assert [name(path) for path in readers] == ["csrc/scaler/host_read.cpp"]


def test_bindings_wait_for_a_decision_without_the_gil():
    # UnscaledGradients asks in the midst of a walk through Python's lists, which nobody may change meanwhile.
    for path in sorted((ROOT / "csrc/bindings").glob("*.cpp")):
        text = path.read_text() if path.name != "unscaled_gradients.cpp" else ""
        for wait in re.finditer(r"\.(applied|outcome)\(\)", text):
            assert "gil_scoped_release" in text[wait.start() - 100 : wait.end() + 100], name(path)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= 400


def opening(path):
    """The text that says what a file is for."""
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(path.read_text()))
    lines = path.read_text().splitlines()
    assert lines[0].startswith("// Copyright"), "first line: copyright and licence"
    return next((line for line in lines[1:4] if line.startswith("// ")), None)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_files_begin_with_what_they_are_for(path):
    assert opening(path)


@pytest.mark.parametrize("path", [path for path in SOURCES if path.suffix == ".py"], ids=name)
def test_python_functions_are_short(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno - node.lineno < 60, node.name


PACKAGE = sorted((ROOT / "python/ampscaler").glob("*.py"))
CONFORMANCE = sorted((ROOT / "python/ampscaler/conformance").rglob("*.py"))


@pytest.mark.parametrize("path", CONFORMANCE, ids=name)
def test_the_conformance_suite_knows_our_scalers_by_name_only(path):
    """It may not know what it tests: our classes reach it as strings, like anyone's."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [getattr(node, "module", None) or "", *[alias.name for alias in node.names]]
            ours = [module for module in modules if module.split(".")[0] == "ampscaler"]
            assert all(module.startswith("ampscaler.conformance") for module in ours), ast.unparse(node)


@pytest.mark.parametrize("path", PACKAGE, ids=name)
def test_the_package_does_without_the_conformance_suite(path):
    assert "ampscaler.conformance" not in path.read_text()


@pytest.mark.parametrize("path", [*PACKAGE, *CONFORMANCE], ids=name)
def test_modules_import_no_private_names_of_each_other(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ampscaler"):
            private = [alias.name for alias in node.names if alias.name.startswith("_")]
            assert set(private) <= {"_C", "_load", "_build_info", "_optimizers"}, private  # modules, not names


@pytest.mark.parametrize("path", PACKAGE, ids=name)
def test_the_package_does_no_arithmetic_on_gradients(path):
    """Arithmetic happens in C++: the Python package multiplies and divides nothing but weights of micro-batches."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    about_weights = {node for f in functions if f.name in {"checked_weights", "_weighted_sum"} for node in ast.walk(f)}
    for node in ast.walk(tree):
        operators = (ast.Mult, ast.Div, ast.Pow, ast.MatMult)
        if node in about_weights:
            continue
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, operators):
            # `folder / "file"` is a path, not arithmetic.
            assert isinstance(node.op, ast.Div), ast.unparse(node)
            assert isinstance(node.right, ast.Constant), ast.unparse(node)
            assert isinstance(node.right.value, str), ast.unparse(node)


def cpp_functions(path):
    """(line, length) of each definition at namespace or class level, by the braces that the style puts at line ends."""
    begin = None
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if begin is None and re.match(r"^ {0,2}[\w~:<>&*, ]+\(.*$", line) and not line.rstrip().endswith(";"):
            begin = number
        if begin is not None and re.match(r"^ {0,2}\}", line):
            yield begin, number - begin + 1
            begin = None
        elif begin is not None and (not line.strip() or line.rstrip().endswith(("};", ");"))) and number - begin < 2:
            begin = None


@pytest.mark.parametrize("path", [path for path in SOURCES if path.suffix in CPP], ids=name)
def test_cpp_functions_are_short(path):
    assert [begin for begin, length in cpp_functions(path) if length > 60] == []


def test_the_measure_of_cpp_functions_sees_a_long_one(tmp_path):
    long = tmp_path / "long.cpp"
    long.write_text("void f(int x) {\n" + "  ++x;\n" * 70 + "}\n")
    assert list(cpp_functions(long)) == [(1, 72)]


def test_fast_math_is_never_asked_for():
    flags = ("-ffast-math", "-Ofast", "use_fast_math", "-ffinite-math-only", "funsafe-math")
    for path in FILES:
        if path.suffix in {".txt", ".cmake", ""} or path.name in {"Makefile", "setup.py"}:
            assert not [flag for flag in flags if flag in path.read_text(errors="ignore")], path


def test_no_path_of_a_machine_is_in_the_repository():
    pattern = re.compile(r"(?<![\w.$}])/(home|root|Users|opt|work)/\w")
    for path in FILES:
        if path.suffix not in {".png", ".json"}:
            assert not pattern.search(path.read_text(errors="ignore")), name(path)
