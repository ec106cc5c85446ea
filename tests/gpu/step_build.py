"""Step build: the library for the one architecture that is there, and the programs of sanitizer and roofline."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

from common import HERE, ROOT, nvcc_of

PROGRAMS = ("roofline", "every_kernel")


def run(*command: object) -> None:
    """Its output is the step's."""
    print("+", *command, flush=True)
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run([str(word) for word in command], env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"failed with exit code {done.returncode}: {command[0]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--arch", required=True, help="such as 90")
    options = parser.parse_args()
    build = options.build
    ninja = shutil.which("ninja") or shutil.which("ninja", path=str(pathlib.Path(sys.executable).parent))
    generator = ["-G", "Ninja"] if ninja else []
    definitions = {
        "Python_EXECUTABLE": sys.executable,
        "AMPSCALER_CUDA": "1",
        "CMAKE_CUDA_ARCHITECTURES": f"{options.arch}-real",
    }
    # Fresh: what an earlier one has cached may be of another machine, compiler or launcher. Objects stay.
    run(
        "cmake",
        "--fresh",
        "-S",
        ROOT,
        "-B",
        build,
        *generator,
        *(f"-D{name}={value}" for name, value in definitions.items()),
    )
    run("cmake", "--build", build, "--parallel", len(os.sched_getaffinity(0)))
    run("cmake", "--install", build, "--prefix", build / "stage/ampscaler")
    nvcc = nvcc_of(build)
    if nvcc is None:
        sys.exit("CMake has configured a build without CUDA")
    architecture = ["-gencode", f"arch=compute_{options.arch},code=sm_{options.arch}"]
    objects = sorted((build / "csrc/CMakeFiles/ampscaler.dir/kernels/cuda").glob("*.cu.o"))
    for program in PROGRAMS:
        source = HERE / f"{program}.cu"
        linked = objects if program == "every_kernel" else []
        flags = ["-std=c++20", "-O3", *architecture, f"-I{ROOT / 'csrc'}"]
        run(nvcc, *flags, source, *linked, "-o", build / program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
