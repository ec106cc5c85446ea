"""RobustAMPManager under DistributedDataParallel: the example program with two gloo processes, and its numbers."""

import os
import pathlib
import re
import subprocess
import sys

import ampscaler

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = ROOT / "examples/python/ddp_accumulation.py"


def run_program():
    environment = os.environ | {
        "PYTHONPATH": str(pathlib.Path(ampscaler.__file__).parents[1]),
        "PYTHONFAULTHANDLER": "1",
    }
    command = [sys.executable, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_all_ranks_skip_a_window_in_which_one_micro_batch_of_one_rank_overflows():
    output = run_program()
    rows = re.findall(r"^ +(\d+) +(\d) +(\d+) +(\d+)  (yes|no)$", output, re.MULTILINE)
    # Windows of 4 micro-batches; the scale doubles after 2 clean ones in a row and halves after the third window.
    windows = [
        (3, 1024, "no"),
        (7, 2048, "no"),
        (11, 1024, "yes"),
        (15, 1024, "no"),
        (19, 2048, "no"),
        (23, 2048, "no"),
    ]
    expected = [
        (step, rank, int((step, rank) == (11, 1)), scale, skipped)
        for step, scale, skipped in windows
        for rank in (0, 1)
    ]
    assert [(int(step), int(rank), int(bad), int(scale), skip) for step, rank, bad, scale, skip in rows] == expected
    assert "The ranks skipped together, and hold equal scales and bit-equal weights." in output
