"""Runs a program with a limit, so that neither it nor a signal can keep this one from going on.

A program has a process group of its own, which is stopped as a whole: at the limit, at a signal, and at the end, for
what it may have left running. Nothing here needs torch.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import BinaryIO

# How long a killed process is waited for: one that hangs in the driver does not die.
STOP_LIMIT = 10.0
POLL = 0.02

LAUNCHERS = ("CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CUDA_COMPILER_LAUNCHER")


class Signals:
    """While it is entered, INT, TERM and HUP are kept in `received`, the first one, instead of ending the process.

    A flag, and no exception, which could come while a program is being started or a file replaced. A signal that is
    ignored, as HUP is under nohup, stays so.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number)

    def __enter__(self) -> Signals:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._keep)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)  # type: ignore[arg-type]


class TimedOut(Exception):
    """The program was stopped at its limit."""


class Interrupted(Exception):
    """The program was stopped because a signal has come."""


def stop(process: subprocess.Popen[bytes]) -> None:
    """Kills the program and all that it has started. Gives up on what does not die within STOP_LIMIT."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_LIMIT)


def wait(process: subprocess.Popen[bytes], limit: float, signals: Signals) -> None:
    """Until the program has ended, but leaves it as a zombie, so that its group cannot be another one's yet."""
    end = time.monotonic() + limit
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if signals.received is not None:
            raise Interrupted(f"stopped by {signals.received.name}")
        if time.monotonic() >= end:
            raise TimedOut(f"stopped at its limit of {limit:.0f} s")
        time.sleep(POLL)


def run(
    command: Sequence[str],
    limit: float,
    signals: Signals,
    environment: Mapping[str, str],
    output: BinaryIO,
    errors: BinaryIO | int = subprocess.STDOUT,
) -> int:
    """The exit code, negative for a signal. Raises TimedOut or Interrupted, and OSError if there is no such program."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
    )
    try:
        wait(process, limit, signals)
    finally:
        stop(process)
    code: int = process.returncode
    return code


def usable_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without compiler launchers that are not there: the machine need not have the ccache of another."""
    found = dict(environment)
    for name in LAUNCHERS:
        launcher = found.get(name, "").split(";")[0]
        if name in found and not is_program(launcher, found.get("PATH")):
            del found[name]
    return found


def is_program(word: str, path: str | None) -> bool:
    folders = [""] if os.sep in word else (path or os.defpath).split(os.pathsep)
    candidates = [pathlib.Path(folder, word) for folder in folders if word]
    return any(file.is_file() and os.access(file, os.X_OK) for file in candidates)
