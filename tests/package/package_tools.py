"""Commands that the package tests share: subprocesses in a clean environment, CMake, readelf."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CONSUMER = REPOSITORY / "tests/consumer"
BIN = pathlib.Path(sys.executable).parent
SITE_PACKAGES = pathlib.Path(sysconfig.get_path("platlib"))
TORCH_DIR = SITE_PACKAGES / "torch"

# Would let an installed package find what only the developer's shell knows.
HIDDEN_VARIABLES = (
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "CMAKE_PREFIX_PATH",
    "Torch_DIR",
    "AMPSCALER_BUILD_DIR",
)


def environment(base: pathlib.Path, **extra: str) -> dict[str, str]:
    """A user's environment. `base` is the folder that ccache makes paths relative to."""
    variables = {k: v for k, v in os.environ.items() if k not in HIDDEN_VARIABLES}
    variables["PATH"] = os.pathsep.join([str(BIN), variables.get("PATH", "")])
    variables["CCACHE_BASEDIR"] = str(base)
    variables["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    if shutil.which("ninja", path=variables["PATH"]):
        variables.setdefault("CMAKE_GENERATOR", "Ninja")
    if ccache := shutil.which("ccache", path=variables["PATH"]):
        variables.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", ccache)
        variables.setdefault("CMAKE_CUDA_COMPILER_LAUNCHER", ccache)
    return variables | extra


def attempt(command: list, cwd: pathlib.Path, **extra: str) -> subprocess.CompletedProcess:
    """Runs a command in `cwd` with a clean environment; stdout holds both streams."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment(cwd, **extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(command: list, cwd: pathlib.Path, **extra: str) -> str:
    """Like attempt, for a command that must succeed. Returns its output."""
    result = attempt(command, cwd, **extra)
    assert result.returncode == 0, f"{' '.join(map(str, command))}\n{result.stdout}"
    return result.stdout


def sentence(output: str) -> str:
    """The output on one line: CMake and pip wrap and indent messages."""
    return " ".join(output.split())


def configure_consumer(folder: pathlib.Path, *options: str) -> subprocess.CompletedProcess:
    """Configures tests/consumer as a user would, with the linker flag that Ubuntu's g++ adds."""
    flag = "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--as-needed"
    return attempt(["cmake", "-S", CONSUMER, "-B", folder, flag, *options], folder.parent)


def build_consumer(folder: pathlib.Path, *options: str) -> pathlib.Path:
    """Configures and builds tests/consumer. Returns the folder of its programs."""
    configured = configure_consumer(folder, *options)
    assert configured.returncode == 0, configured.stdout
    run(["cmake", "--build", folder], folder.parent)
    return folder


def check_consumer(folder: pathlib.Path) -> None:
    """Runs both programs of a built consumer."""
    assert run([folder / "scaler_step"], folder) == "stepped 1 scale 2048\n"
    assert run([folder / "operators_only"], folder) == "registered 1\n"


def dynamic_section(library: pathlib.Path, tag: str) -> list[str]:
    """Values of a tag of the dynamic section: NEEDED gives names, RUNPATH gives folders."""
    text = run(["readelf", "--dynamic", "--wide", library], library.parent)
    values = re.findall(rf"\({tag}\).*\[(.*)\]", text)
    return [part for value in values for part in value.split(":")]


def copy_project(folder: pathlib.Path) -> pathlib.Path:
    """Copies the files that git knows or would add: a fresh clone, with the changes at hand."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in run(listed, REPOSITORY).splitlines():
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name)
    return folder


def hard_link_tree(source: pathlib.Path, target: pathlib.Path) -> None:
    """Gigabytes in seconds, for folders that nothing writes into. Needs one file system."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "--archive", "--link", source, target], check=True)
