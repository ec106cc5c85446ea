"""The command line: python -m ampscaler.conformance. Exit code 0: conforms, 1: differs, 2: wrong usage or no import."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence

import torch

from ampscaler.conformance import report
from ampscaler.conformance.differences import DIFFERENCES
from ampscaler.conformance.random import run_random
from ampscaler.conformance.registry import SECTIONS, Behaviour, all_behaviours
from ampscaler.conformance.runner import FAIL, run
from ampscaler.conformance.subject import DROP_IN, TORCH_SCALER, Subject, UnknownSubject, find_operators, find_subject

CONFORMS, DIFFERS, USAGE = 0, 1, 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ampscaler.conformance",
        description="Holds a gradient scaler, or a pair of operators, against the behaviour of torch.amp.GradScaler.",
        epilog=f"exit code {CONFORMS}: conforms; {DIFFERS}: differs; {USAGE}: wrong usage or import error",
    )
    add = parser.add_argument
    add(
        "--scaler",
        metavar="MODULE:CLASS",
        help=f"class under test (default {DROP_IN}; torch's: {TORCH_SCALER})",
    )
    add(
        "--ops",
        nargs=2,
        metavar=("UNSCALE", "UPDATE"),
        help="test two operators, by qualified name, and no scaler",
    )
    add("--import", dest="imports", action="append", default=[], metavar="MODULE", help="import this module first")
    add("--device", default="cpu", help="where the tensors live (default cpu)")
    add("--section", action="append", type=int, choices=SECTIONS, metavar="N", help="only this section; repeatable")
    add(
        "--differences",
        type=pathlib.Path,
        metavar="FILE",
        help="JSON {id: reason}: meant to be different",
    )
    add("--json", type=pathlib.Path, metavar="FILE", help="write the results as JSON")
    add("--junit", type=pathlib.Path, metavar="FILE", help="write the results as JUnit XML")
    add("--list", action="store_true", help="list the behaviours and stop")
    add("--random", type=int, metavar="N", help="run N random programs on torch's scaler and on this one, in lock-step")
    add("--seed", type=int, default=0, metavar="S", help="seed of the random programs (default 0)")
    return parser


def _subject(arguments: argparse.Namespace) -> Subject:
    for module in arguments.imports:
        importlib.import_module(module)
    if arguments.ops and not arguments.scaler:
        return Subject(" ".join(arguments.ops), None, find_operators(*arguments.ops))
    return find_subject(arguments.scaler or DROP_IN, arguments.ops)


def _select(arguments: argparse.Namespace, subject: Subject) -> list[Behaviour]:
    chosen = [b for b in all_behaviours() if not arguments.section or b.section in arguments.section]
    return [b for b in chosen if b.operators] if subject.scaler_class is None else chosen


def _device(name: str) -> torch.device:
    device = torch.device(name)
    if torch.ones(2, device=device).sum().item() != 2.0:
        raise RuntimeError(f"device '{name}' does not compute")
    return device


def _contract(arguments: argparse.Namespace, subject: Subject, device: torch.device) -> int:
    differences = dict(DIFFERENCES.get(subject.name, {}))
    if arguments.differences:
        differences |= json.loads(arguments.differences.read_text())
    results = run(_select(arguments, subject), subject, device, differences)
    print(f"{subject.name} on {device}, torch {torch.__version__}\n\n{report.table(results)}")
    if arguments.json:
        report.write_json(results, subject.name, str(device), arguments.json)
    if arguments.junit:
        report.write_junit(results, subject.name, str(device), arguments.junit)
    return DIFFERS if any(result.status == FAIL for result in results) else CONFORMS


def _random(arguments: argparse.Namespace, subject: Subject, device: torch.device) -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", folder)  # else a folder is left where the command runs
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
        subject, device = _subject(arguments), _device(arguments.device)
    except (UnknownSubject, ImportError, RuntimeError, NotImplementedError, AssertionError) as error:
        parser.error(str(error))
    if arguments.list:
        for behaviour in _select(arguments, subject):
            print(f"{behaviour.id:7}{behaviour.sentence}")
        return CONFORMS
    if arguments.random is not None:
        if arguments.random < 1 or subject.scaler_class is None:
            parser.error("--random needs a number of programs above 0, and a scaler")
        try:
            return _random(arguments, subject, device)
        except ModuleNotFoundError as error:
            parser.error(str(error))
    return _contract(arguments, subject, device)


if __name__ == "__main__":
    sys.exit(main())
