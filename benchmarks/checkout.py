"""The commit that a result belongs to."""

import pathlib
import subprocess


def commit() -> str:
    """Of this checkout, with -dirty if it was changed."""
    command = ["git", "describe", "--always", "--dirty"]
    folder = pathlib.Path(__file__).parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"
