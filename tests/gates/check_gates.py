"""Checks the machine code of the CUDA kernels against budgets.py, and lints the kernels; no GPU is needed.

    python tests/gates/check_gates.py --build build/2.15.0-cuda-auto

Reads what the build has made, for every architecture that it was made for. That a kernel compiles without a warning
and without a spill is a matter of the build itself. Prints a line per kernel and architecture; the exit code is 1 if a
rule is broken, a kernel has no rules, rules have no kernel, an architecture of the build lacks a kernel, or the library
is too large.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import machine_code
from budgets import LOADS, NO_LOCAL, RULES, STORES, barriers, broken_rules, counters, fences
from machine_code import Kernel, MissingToolError
from planted import check_planted

ROOT = pathlib.Path(__file__).parents[2]
# Between them they include every kernel and instantiate it as plain C++.
LINTED = (
    "tests/simt/launch_plan_test.cpp",
    "tests/simt/step_factors_kernel_test.cpp",
    "tests/simt/unscale_kernel_test.cpp",
)
MOST_MEGABYTES = 20
COLUMNS = (LOADS, STORES, NO_LOCAL, barriers(0), fences(0), counters(0))
HEAD = f"{'kernel':42}{'arch':>7}{'regs':>6}{'stack':>6}{'shared':>7}  " + "".join(
    f"{name:>8}" for name in ("ld.128", "st.128", "local", "barriers", "fences", "counters")
)


def line(kernel: Kernel) -> str:
    """A line of the table."""
    counts = [kernel.count(rule.ptx if kernel.arch == "ptx" else rule.sass) for rule in COLUMNS]
    numbers = ["", "", ""] if kernel.arch == "ptx" else [kernel.registers, kernel.stack, kernel.shared]
    resources = f"{numbers[0]:>6}{numbers[1]:>6}{numbers[2]:>7}"
    return f"{kernel.name:42}{kernel.arch:>7}{resources}  " + "".join(f"{count:>8}" for count in counts)


def architectures(cache: str) -> set[str]:
    """What a CMakeCache.txt says that every kernel is compiled for: GPUs, and `ptx` for those to come."""
    found = re.search(r"^CMAKE_CUDA_ARCHITECTURES:\w+=(.+)$", cache, re.MULTILINE)
    names = found.group(1).split(";") if found else []
    return {"ptx" if name.endswith("-virtual") else f"sm_{name.removesuffix('-real')}" for name in names}


def left_out(kernels: list[Kernel], expected: set[str]) -> list[str]:
    """The architectures for which a kernel is missing."""
    found: dict[str, set[str]] = {}
    for kernel in kernels:
        found.setdefault(kernel.name, set()).add(kernel.arch)
    wrong = [f"{name}: not compiled for {arch}" for name, archs in found.items() for arch in sorted(expected - archs)]
    return wrong if expected else ["the build names no architecture"]


def check_size(build: pathlib.Path) -> list[str]:
    """The library with the kernels of all architectures."""
    size = (build / "csrc/libampscaler.so").stat().st_size
    print(f"library: {size / 1e6:.2f} MB, at most {MOST_MEGABYTES}")
    return [f"the library has {size} bytes"] if size > MOST_MEGABYTES * 1e6 else []


def check_kernels(build: pathlib.Path, jobs: int) -> list[str]:
    """Prints the table; returns what is wrong."""
    kernels = machine_code.read(build, jobs)
    wrong = []
    print(HEAD)
    for kernel in sorted(kernels, key=lambda kernel: (kernel.name, len(kernel.arch), kernel.arch)):
        broken = broken_rules(kernel)
        print(line(kernel) + "".join(f"\n    WRONG: {text}" for text in broken))
        wrong += [f"{kernel.name} for {kernel.arch}: {text}" for text in broken]
    unused = [name for name in RULES if not any(kernel.name.startswith(name) for kernel in kernels)]
    wrong += left_out(kernels, architectures((build / "CMakeCache.txt").read_text()))
    return wrong + [f"no kernel has the name {name}" for name in unused]


# Lambdas within lambdas are how kernels go through units of several dtypes: nesting is not counted here. The address
# in a table becomes a pointer.
LINT_CHECKS = (
    "-*,bugprone-*,performance-*,clang-analyzer-*,-bugprone-easily-swappable-parameters,"
    "-performance-no-int-to-ptr,-clang-diagnostic-*"
)

HEADERS_ONLY = '-line-filter=[{"name":".cuh"},{"name":".h"}]'


def complaints(result: subprocess.CompletedProcess[str]) -> list[str]:
    """What clang-tidy says is wrong; something in any case if its exit code is not 0."""
    if result.returncode == 0:
        return []
    said = result.stdout + result.stderr
    found = [text for text in said.splitlines() if ": error:" in text or ": warning:" in text]
    return found or [f"clang-tidy ended with exit code {result.returncode}: {said[-500:]}"]


def lint(build: pathlib.Path, jobs: int) -> list[str]:
    """clang-tidy over the kernel headers; returns its complaints."""

    def lint_file(file: str) -> subprocess.CompletedProcess[str]:
        options = [
            "-extra-arg=-w",  # options of g++ that clang does not know
            "-header-filter=.*/csrc/(kernels/cuda|core)/.*",
            HEADERS_ONLY,
        ]
        checks = f"-checks={LINT_CHECKS}"
        command = ["clang-tidy", "-quiet", "-p", str(build), *options, checks, str(ROOT / file)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(jobs) as pool:
        return [text for result in pool.map(lint_file, LINTED) for text in complaints(result)]


def main() -> int:
    """Returns 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a finished build folder")
    parser.add_argument("--no-lint", action="store_true", help="leave out clang-tidy")
    parser.add_argument("--no-planted", action="store_true", help="plant no defects to see whether they are noticed")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    arguments = parser.parse_args()
    if not (arguments.build / "csrc/libampscaler.so").exists():
        print(f"{arguments.build} is no finished build: `make build` makes one")
        return 1
    if not machine_code.object_files(arguments.build):
        print(f"skipped: {arguments.build} is a build without CUDA kernels")
        return 0
    begin = time.monotonic()
    try:
        wrong = check_kernels(arguments.build, arguments.jobs)
    except MissingToolError as error:
        print(error)
        return 1
    wrong += check_size(arguments.build)
    print(f"machine code took {time.monotonic() - begin:.0f} s")
    if not arguments.no_planted:
        wrong += check_planted(arguments.build)
    if not arguments.no_lint:
        begin = time.monotonic()
        wrong += lint(arguments.build, arguments.jobs)
        print(f"clang-tidy took {time.monotonic() - begin:.0f} s")
    print("\n".join(wrong) if wrong else "all kernels keep their budgets")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
