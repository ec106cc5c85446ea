"""Step sanitizer: every kernel under compute-sanitizer's four tools, if installed; without it once as it is."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

from common import measured, nvcc_of
from runner import SKIPPED_CODE

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")


def find_sanitizer(nvcc: pathlib.Path | None) -> str | None:
    """On PATH, in CUDA_HOME, or beside nvcc."""
    folders = [os.environ.get("PATH", "")]
    if "CUDA_HOME" in os.environ:
        folders.append(os.path.join(os.environ["CUDA_HOME"], "bin"))
    if nvcc:
        folders.append(str(nvcc.parent))
    return shutil.which("compute-sanitizer", path=os.pathsep.join(folders))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    options = parser.parse_args()
    program = str(options.build / "every_kernel")
    plain = subprocess.run([program], check=False).returncode
    measured(what="every kernel", exit_code=plain)
    if plain != 0:
        return 1
    sanitizer = find_sanitizer(nvcc_of(options.build))
    if sanitizer is None:
        print("every kernel ran and found what it should; compute-sanitizer is not installed")
        return SKIPPED_CODE
    codes = []
    for tool in TOOLS:
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9", program]
        print("+", *command, flush=True)
        codes.append(subprocess.run(command, check=False).returncode)
        measured(what=tool, exit_code=codes[-1])
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
