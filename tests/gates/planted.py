"""Two kernels made worse on purpose, to see that the gates notice: one for the compiler, one for budgets.py."""

import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

from budgets import broken_rules
from machine_code import kernels_of, tool_environment

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/simt"))

from check_mutants import mutated_header  # noqa: E402
from mutations import Mutation  # noqa: E402

SOURCE = "csrc/kernels/cuda/unscale.cu"
SPILLS = Mutation(
    "half as many registers as the kernel needs",
    "",
    (),
    "csrc/kernels/cuda/pass_grid.h",
    "inline constexpr int kBlocksPerMultiprocessor = 2;",
    "inline constexpr int kBlocksPerMultiprocessor = 4;",
)
NARROW = Mutation(
    "four loads of 4 bytes instead of one of 16",
    "",
    (),
    "csrc/kernels/cuda/elements.cuh",
    "const uint4 value = *from;",
    "const volatile uint4& four = *from; const uint4 value = make_uint4(four.x, four.y, four.z, four.w);",
)


def compile_command(build: pathlib.Path) -> list[str]:
    """That of SOURCE, without ccache and for one architecture."""
    entries = json.loads((build / "compile_commands.json").read_text())
    command = next(shlex.split(entry["command"]) for entry in entries if entry["file"] == str(ROOT / SOURCE))
    nvcc = next(number for number, word in enumerate(command) if pathlib.Path(word).name == "nvcc")
    words = [word for word in command[nvcc:] if not word.startswith(("--generate-code", "-arch", "-MD", "-MF", "-MT"))]
    return [*words, "-gencode", "arch=compute_90,code=sm_90"]


def compile_with(build: pathlib.Path, mutation: Mutation, folder: pathlib.Path) -> tuple[pathlib.Path, str]:
    """The object file, and what the compiler says: something if it refuses."""
    wrong = mutated_header(mutation, folder)
    if wrong:
        raise RuntimeError(wrong)
    words = compile_command(build)
    target = folder / "planted.o"
    words[words.index("-o") + 1] = str(target)
    done = subprocess.run([words[0], f"-I{folder}", *words[1:]], cwd=build, capture_output=True, text=True, check=False)
    return target, done.stdout + done.stderr if done.returncode != 0 else ""


def check_planted(build: pathlib.Path) -> list[str]:
    """What went unnoticed; prints what was noticed."""
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        _, said = compile_with(build, SPILLS, pathlib.Path(name))
        if "spill" in said.lower() or "local memory" in said.lower():
            print(f"noticed by the compiler: {SPILLS.name}")
        else:
            wrong.append(f"unnoticed: {SPILLS.name}: {said[-300:]}")
    with tempfile.TemporaryDirectory() as name:
        target, said = compile_with(build, NARROW, pathlib.Path(name))
        kernels = [] if said else kernels_of(target, tool_environment())
        broken = [text for kernel in kernels for text in broken_rules(kernel) if "16-byte loads" in text]
        if broken:
            print(f"noticed by the budgets: {NARROW.name}")
        else:
            wrong.append(f"unnoticed: {NARROW.name}: {said[-300:]}")
    return wrong
