"""What nvcc made of the CUDA kernels, read from the object files of a build: resources, machine code, PTX.

    code = read(build folder)   ->  [Kernel("stats_kernel<ReadOnly, 512, 120>", "sm_90", registers=52, ...), ...]

Needs `cuobjdump`, which needs `nvdisasm`: from PyPI's wheels of these names, or a CUDA toolkit on PATH.
"""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

TOOLS = ("cuobjdump", "nvdisasm")


class MissingToolError(RuntimeError):
    """Says what is missing and what brings it."""


@dataclass
class Kernel:
    """One kernel for one GPU architecture; for `ptx` only the operations are known."""

    name: str
    arch: str
    registers: int = 0
    stack: int = 0
    local: int = 0
    shared: int = 0
    operations: Counter[str] = field(default_factory=Counter)

    def count(self, pattern: str) -> int:
        """Operations whose whole name matches."""
        return sum(number for operation, number in self.operations.items() if re.fullmatch(pattern, operation))


def tool_folders() -> list[str]:
    """Where the wheels of this Python have put the tools."""
    folders = []
    for tool in TOOLS:
        try:
            files = importlib.metadata.files(f"nvidia-cuda-{tool}") or []
        except importlib.metadata.PackageNotFoundError:
            continue
        folders += [str(pathlib.Path(str(file.locate())).parent) for file in files if file.name == tool]
    return folders


def tool_environment() -> dict[str, str]:
    """The environment with the tools on PATH."""
    path = os.pathsep.join([*tool_folders(), os.environ.get("PATH", "")])
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=path)]
    if missing:
        wheels = " ".join(f"nvidia-cuda-{tool}" for tool in missing)
        raise MissingToolError(f"no {' and no '.join(missing)}: pip install {wheels}, or put them on PATH")
    return {**os.environ, "PATH": path}


def dump(what: str, file: pathlib.Path, environment: dict[str, str]) -> str:
    """What `cuobjdump` says about an object file."""
    command = ["cuobjdump", what, str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout


def short_name(symbol: str) -> str:
    """`_ZN9ampscaler4cuda12stats_kernelINS0_8ReadOnlyELi512ELi120EEE...` -> `stats_kernel<ReadOnly, 512, 120>`."""
    names = re.match(r"_ZN9ampscaler4cuda(\d+)(\w+)", symbol)
    if not names:
        return symbol
    length = int(names.group(1))
    name, rest = names.group(2)[:length], names.group(2)[length:]
    arguments = []
    if rest.startswith("I"):
        for found in re.finditer(r"NS\d*_(\d+)|Li(\d+)E", rest[: rest.find("EEEv") + 1]):
            arguments.append(found[2] or rest[found.end() : found.end() + int(found[1])])
    return f"{name}<{', '.join(arguments)}>" if arguments else name


def parts(text: str, marker: str) -> Iterator[tuple[str, str]]:
    """(rest of the line, what follows) for each line that begins with the marker."""
    for part in re.split(rf"^\s*{marker}", text, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        yield head.strip(), body


def resources(text: str) -> Iterator[Kernel]:
    """From `cuobjdump -res-usage`."""
    for arch, body in parts(text, "arch = "):
        for symbol, numbers in parts(body, "Function "):
            values = dict(re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", numbers))
            shared = int(values["SHARED"])
            # From sm_80 on the driver keeps 1 KB of every block that has shared memory.
            reserved = 1024 if shared > 0 and int(re.sub(r"\D", "", arch)) >= 80 else 0
            yield Kernel(
                short_name(symbol.rstrip(":")),
                arch,
                registers=int(values["REG"]),
                stack=int(values["STACK"]),
                shared=shared - reserved,
                local=int(values["LOCAL"]),
            )


INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)


def machine_code(text: str) -> Iterator[Kernel]:
    """From `cuobjdump -sass`."""
    for arch, body in parts(text, "code for "):
        for symbol, instructions in parts(body, "Function : "):
            yield Kernel(short_name(symbol), arch, operations=Counter(INSTRUCTION.findall(instructions)))


PTX_OPERATION = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.]*\.[\w.]+)", re.MULTILINE)


def ptx(text: str) -> Iterator[Kernel]:
    """From `cuobjdump -ptx`: the code for GPUs to come."""
    for head, body in parts(text, r"\.visible \.entry "):
        code = re.split(r"^[\w. ]*\.func ", body, maxsplit=1, flags=re.MULTILINE)[0]  # what is called comes after it
        operations = Counter(PTX_OPERATION.findall(code))
        operations[".local"] = len(re.findall(r"^\s*\.local", code, re.MULTILINE))
        yield Kernel(short_name(head.rstrip("(")), "ptx", operations=operations)


def kernels_of(file: pathlib.Path, environment: dict[str, str]) -> list[Kernel]:
    """All kernels of an object file, for every architecture in it."""
    known = {(kernel.name, kernel.arch): kernel for kernel in resources(dump("-res-usage", file, environment))}
    for kernel in machine_code(dump("-sass", file, environment)):
        known[kernel.name, kernel.arch].operations = kernel.operations
    return [*known.values(), *ptx(dump("-ptx", file, environment))]


def object_files(build: pathlib.Path) -> list[pathlib.Path]:
    """Those of the library's CUDA sources; none in a build without CUDA."""
    return sorted((build / "csrc/CMakeFiles/ampscaler.dir/kernels/cuda").glob("*.cu.o"))


def read(build: pathlib.Path, jobs: int) -> list[Kernel]:
    """All kernels of the library."""
    environment = tool_environment()
    with ThreadPoolExecutor(jobs) as pool:
        found = pool.map(lambda file: kernels_of(file, environment), object_files(build))
    return [kernel for kernels in found for kernel in kernels]
