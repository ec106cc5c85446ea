"""The command line: python -m ampscaler.conformance. Exit code 0: conforms, 1: differs, 2: wrong usage or no import."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

import torch

from ampscaler.conformance import report
from ampscaler.conformance.differences import DIFFERENCES
from ampscaler.conformance.random import run_random
from ampscaler.conformance.registry import SECTIONS, Behaviour, all_behaviours
from ampscaler.conformance.runner import FAIL, run
from ampscaler.conformance.subject import (
    DROP_IN,
    TORCH_SCALER,
    Subject,
    UnknownSubject,
    find_operators,
    find_subject,
    import_module,
)

CONFORMS, DIFFERS, USAGE = 0, 1, 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ampscaler.conformance",
        description="Holds a gradient scaler, or a pair of operators, against the behaviour of torch.amp.GradScaler.",
        epilog=f"exit code {CONFORMS}: conforms; {DIFFERS}: differs; {USAGE}: wrong usage or import error",
    )
    add = parser.add_argument
    add("--scaler", metavar="MODULE:CLASS", help=f"class under test (default {DROP_IN}; torch's: {TORCH_SCALER})")
    add("--ops", nargs=2, metavar=("UNSCALE", "UPDATE"), help="two operators under test, by qualified name")
    add("--import", dest="imports", action="append", default=[], metavar="MODULE", help="import this module first")
    add("--device", default="cpu", help="where the tensors live (default cpu)")
    add("--section", action="append", type=int, choices=SECTIONS, metavar="N", help="only this section; repeatable")
    add("--differences", type=pathlib.Path, metavar="FILE", help="JSON {id: reason}: meant to be different")
    add("--json", type=pathlib.Path, metavar="FILE", help="write the results as JSON")
    add("--junit", type=pathlib.Path, metavar="FILE", help="write the results as JUnit XML")
    add("--list", action="store_true", help="list the behaviours and stop")
    add("--random", type=int, metavar="N", help="run N random programs on torch's scaler and on this one, in lock-step")
    add("--seed", type=int, default=0, metavar="S", help="seed of the random programs (default 0)")
    return parser


class UsageError(Exception):
    """The command line asks for what cannot be; the text says what was expected."""


def _check(arguments: argparse.Namespace) -> None:
    """What argparse cannot check. Before anything runs, so that no result is lost."""
    for option in ("json", "junit"):
        file = getattr(arguments, option)
        if file and (file.is_dir() or not file.parent.is_dir()):
            raise UsageError(f"--{option} {file}: expected a file in a folder that exists")
    if arguments.random is None:
        return
    if arguments.random < 1:
        raise UsageError(f"--random {arguments.random}: expected a number of programs above 0")
    for option in ("ops", "section", "differences", "json", "junit"):
        if getattr(arguments, option):
            raise UsageError(f"--random: expected no --{option}, which is about the contract")


def _subject(arguments: argparse.Namespace) -> Subject:
    for module in arguments.imports:
        import_module(module)
    if arguments.ops and not arguments.scaler:
        return Subject(" ".join(arguments.ops), None, find_operators(*arguments.ops))
    return find_subject(arguments.scaler or DROP_IN, arguments.ops)


def _select(arguments: argparse.Namespace, subject: Subject) -> list[Behaviour]:
    chosen = [b for b in all_behaviours() if not arguments.section or b.section in arguments.section]
    selected = [b for b in chosen if b.operators or subject.scaler_class is not None]
    if not selected:
        raise UsageError("--section: expected a section with a behaviour of operators; there is none in this one")
    return selected


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        works = torch.ones(2, device=device).sum().item() == 2.0
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        raise UsageError(f"--device {name}: {error}") from error
    if not works:
        raise UsageError(f"--device {name}: expected a device that computes 1 + 1 = 2")
    return device


def _differences(file: pathlib.Path | None, subject: Subject) -> dict[str, str]:
    differences = dict(DIFFERENCES.get(subject.name, {}))
    if file is None:
        return differences
    try:
        given = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"--differences {file}: {error}") from error
    if not isinstance(given, dict) or not all(isinstance(reason, str) for reason in given.values()):
        raise UsageError(f"--differences {file}: expected a JSON object of behaviour ids and reasons")
    unknown = sorted(given.keys() - {behaviour.id for behaviour in all_behaviours()})
    if unknown:
        raise UsageError(f"--differences {file}: expected ids of the contract, got {', '.join(unknown)}")
    return differences | given


def _list(arguments: argparse.Namespace, subject: Subject) -> int:
    for behaviour in _select(arguments, subject):
        print(f"{behaviour.id:7}{behaviour.sentence}")
    return CONFORMS


def _contract(arguments: argparse.Namespace, subject: Subject, device: torch.device) -> int:
    differences = _differences(arguments.differences, subject)
    results = run(_select(arguments, subject), subject, device, differences)
    print(f"{subject.name} on {device}, torch {torch.__version__}\n\n{report.table(results)}")
    if arguments.json:
        report.write_json(results, subject.name, str(device), arguments.json)
    if arguments.junit:
        report.write_junit(results, subject.name, str(device), arguments.junit)
    return DIFFERS if any(result.status == FAIL for result in results) else CONFORMS


def _random(arguments: argparse.Namespace, subject: Subject, device: torch.device) -> int:
    outcome = run_random(subject.scaler_class, arguments.random, arguments.seed, str(device))
    print(
        f"{subject.name} on {device}, torch {torch.__version__}, seed {arguments.seed}: {outcome.programs} programs, "
        f"{outcome.statements} statements, {outcome.raised} of them raised"
    )
    if outcome.script is None:
        return CONFORMS
    print(f"the last program differs; as a script:\n\n{outcome.script}")
    return DIFFERS


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        _check(arguments)
        subject = _subject(arguments)
        if arguments.list:
            return _list(arguments, subject)
        device = _device(arguments.device)
        command = _contract if arguments.random is None else _random
        return command(arguments, subject, device)
    except (UsageError, UnknownSubject, ModuleNotFoundError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
