"""Bridge from pip to the CMake build, which is the only truth: its install prefix is the wheel.

AMPSCALER_CUDA       0, 1 or auto (default), handed to CMake
AMPSCALER_BUILD_DIR  a configured build folder, as `make build` leaves it, to take a wheel from
"""

import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent
# cmake, ninja and ccache of the environment come before those of the system.
PATH = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])

try:
    # Early: pip would otherwise download torch first, then fail all the same.
    TORCH = importlib.metadata.version("torch").split("+")[0]
except importlib.metadata.PackageNotFoundError:
    sys.exit("install torch, then `pip install --no-build-isolation .`")


def cmake(*arguments: object) -> None:
    """Runs cmake; its own message is the last thing shown when it fails."""
    program = shutil.which("cmake", path=PATH)
    if program is None:
        sys.exit("ampscaler: cmake >= 3.26 is needed: `pip install cmake ninja`")
    environment = {**os.environ, "PATH": PATH}
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(len(os.sched_getaffinity(0))))
    if shutil.which("ninja", path=PATH):
        environment.setdefault("CMAKE_GENERATOR", "Ninja")
    command = [program, *map(str, arguments)]
    if subprocess.run(command, env=environment).returncode:
        sys.exit(f"ampscaler: this command failed, its message is above: {' '.join(command)}")


def configured_folder(editable: bool) -> pathlib.Path:
    """The folder to build in. One given from outside keeps its options: nothing is recompiled."""
    given = os.environ.get("AMPSCALER_BUILD_DIR")
    if given and not editable:
        return pathlib.Path(given).resolve()
    cuda = os.environ.get("AMPSCALER_CUDA", "auto")
    # A folder per torch and mode, two levels deep like those of the Makefile: ccache then shares.
    kind = "editable" if editable else "wheel"
    folder = ROOT / "build" / f"{kind}-{TORCH}-cuda-{cuda}-{sys.implementation.cache_tag}"
    options = {
        "Python_EXECUTABLE": sys.executable,
        "AMPSCALER_CUDA": cuda,
        "AMPSCALER_EDITABLE": "ON" if editable else "OFF",
    }
    cmake("-S", ROOT, "-B", folder, *(f"-D{name}={value}" for name, value in options.items()))
    return folder


class CMakeBuild(build_ext):
    """Configures, builds and installs; Python files are laid by CMake, too."""

    def run(self) -> None:
        editable = self.inplace or getattr(self, "editable_mode", False)
        prefix = ROOT / "python/ampscaler" if editable else pathlib.Path(self.build_lib, "ampscaler")
        folder = configured_folder(editable)
        cmake("--build", folder, "--target", "ampscaler", "_C")
        if not editable:
            # Left by an earlier build, or copied by build_py from an editable install.
            shutil.rmtree(prefix, ignore_errors=True)
        cmake("--install", folder, "--prefix", prefix, "--strip")

    def get_outputs(self) -> list[str]:
        return []

    def get_output_mapping(self) -> dict[str, str]:
        return {}


# The empty extension gives the wheel its platform tag.
setup(ext_modules=[Extension("ampscaler._C", [])], cmdclass={"build_ext": CMakeBuild})
