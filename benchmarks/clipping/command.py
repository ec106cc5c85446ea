"""The command line: measures, prints and writes."""

from __future__ import annotations

import argparse
import json
import pathlib
import re
from typing import Any

import torch

from clipping import record, report
from clipping.cases import KINDS, Case, all_cases, shrunk
from clipping.clock import Problem

RESULTS = pathlib.Path(__file__).parents[1] / "results/clip_grad_norm"


def label(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise argparse.ArgumentTypeError(f"expected letters, digits, - and _, got {text!r}")
    return text


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number >= 1, got {text}")
    return value


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="clip_grad_norm.py", description=__doc__)
    parser.add_argument("--label", type=label, default="latest", help="name of the result's file")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="folder that the file goes to")
    parser.add_argument("--threads", type=positive, nargs="+", default=[1, 2])
    parser.add_argument("--kinds", choices=KINDS, nargs="+", default=list(KINDS))
    parser.add_argument("--cases", metavar="TEXT", nargs="+", help="only cases whose name contains one of these")
    parser.add_argument("--seconds", type=float, default=4.0, help="measuring time per row")
    parser.add_argument("--quick", action="store_true", help="a smoke test on small gradients; times mean nothing")
    options = parser.parse_args(arguments)
    options.chosen = chosen_cases(options)
    if not options.chosen:
        parser.error(f"--cases: expected parts of {', '.join(case.name for case in all_cases())}")
    return options


def chosen_cases(options: argparse.Namespace) -> list[Case]:
    cases = [shrunk(case) if options.quick else case for case in all_cases()]
    return [case for case in cases if not options.cases or any(text in case.name for text in options.cases)]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The record; rows are printed as they come."""
    found: dict[str, Any] = {
        "schema": record.SCHEMA,
        "label": options.label,
        "quick": options.quick,
        "machine": record.machine(),
        "software": record.software(),
        "load": {"before": record.load_average()},
        "seconds": 0.0 if options.quick else options.seconds,
        "results": [],
    }
    print(report.heading(found))
    for case in options.chosen:
        for kind in options.kinds:
            problem = Problem(case, kind)
            for threads in options.threads:
                cell = problem.measure(threads, found["seconds"])
                found["results"].append(record.result(cell, judged=not options.quick))
                print(report.row(found["results"][-1]), flush=True)
    found["load"]["after"] = record.load_average()
    print(report.closing(found))
    return found


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    torch.manual_seed(0)
    found = measure(options)
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / f"{options.label}.json"
    path.write_text(json.dumps(found, indent=2, allow_nan=False) + "\n")
    return 0
