"""Step roofline: what memory allows, by loads in flight and blocks; launches by the size of their arguments."""

import argparse
import json
import pathlib
import subprocess
import sys

from common import measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    options = parser.parse_args()
    program = subprocess.Popen([options.build / "roofline"], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    for line in program.stdout:
        measured(**json.loads(line))
    return program.wait()


if __name__ == "__main__":
    sys.exit(main())
