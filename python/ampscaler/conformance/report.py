"""Results as a table for the terminal, as JSON and as JUnit XML."""

from __future__ import annotations

import collections
import json
import pathlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Any

import torch

from ampscaler.conformance.registry import SECTIONS
from ampscaler.conformance.runner import DIFFERENT, FAIL, FOUND, NOT_APPLICABLE, STATUSES, Result


def table(results: Sequence[Result]) -> str:
    """One line per section, then what is not a plain pass, then the first failure in full."""
    width = max(len(title) for title in SECTIONS.values()) + 4
    lines = ["".ljust(width) + "".join(status.rjust(11) for status in STATUSES)]
    for number, title in SECTIONS.items():
        counts = _counts([result for result in results if result.behaviour.section == number])
        if sum(counts.values()):
            lines.append(_row(f"{number:2}  {title}", counts, width))
    lines.append(_row("    all", _counts(results), width))
    for status in (DIFFERENT, NOT_APPLICABLE, FOUND, FAIL):
        listed = [result for result in results if result.status == status]
        if listed:
            lines.append(f"\n{status}:")
        lines += [f"  {r.behaviour.id:7}{r.behaviour.sentence}\n         {r.detail}" for r in listed]
    failures = [result for status in (FAIL, FOUND) for result in results if result.status == status]
    return "\n".join(lines + [f"\nfirst difference, {in_full(result)}" for result in failures[:1]])


def _counts(results: Sequence[Result]) -> collections.Counter[str]:
    return collections.Counter(result.status for result in results)


def _row(title: str, counts: collections.Counter[str], width: int) -> str:
    return title.ljust(width) + "".join(str(counts[status] or "").rjust(11) for status in STATUSES)


def in_full(result: Result) -> str:
    """A result with the calls that led to it."""
    behaviour = result.behaviour
    calls = "".join(f"\n    {line}" for line in result.calls)
    return f"{behaviour.id} ({behaviour.source}): {behaviour.sentence}{calls}\n  {result.detail}"


def as_json(results: Sequence[Result], subject: str, device: str) -> dict[str, Any]:
    """The results as plain values: what was under test, the counts, and every behaviour."""
    return {
        "subject": subject,
        "device": device,
        "torch": torch.__version__,
        "counts": {status: _counts(results)[status] for status in STATUSES},
        "results": [
            {
                "id": result.behaviour.id,
                "section": result.behaviour.section,
                "sentence": result.behaviour.sentence,
                "source": result.behaviour.source,
                "status": result.status,
                "detail": result.detail,
                "calls": list(result.calls),
            }
            for result in results
        ],
    }


def write_json(results: Sequence[Result], subject: str, device: str, file: pathlib.Path) -> None:
    """Writes as_json to a file."""
    file.write_text(json.dumps(as_json(results, subject, device), indent=1) + "\n")


def write_junit(results: Sequence[Result], subject: str, device: str, file: pathlib.Path) -> None:
    """Writes JUnit XML, which CI systems show; n/a and declared differences count as skipped, with the reason."""
    counts = _counts(results)
    skipped = (DIFFERENT, NOT_APPLICABLE, FOUND)
    numbers = {"tests": len(results), "failures": counts[FAIL], "skipped": sum(counts[status] for status in skipped)}
    attributes = {key: str(value) for key, value in numbers.items()}
    suite = ElementTree.Element("testsuite", {"name": f"ampscaler.conformance {subject} on {device}", **attributes})
    for result in results:
        behaviour = result.behaviour
        name = f"{behaviour.id} {behaviour.sentence}"
        classname = f"{behaviour.section} {SECTIONS[behaviour.section]}"
        case = ElementTree.SubElement(suite, "testcase", name=name, classname=classname, time="0")
        if result.status == FAIL:
            ElementTree.SubElement(case, "failure", message=_xml(result.detail)).text = _xml(in_full(result))
        elif result.status in skipped:
            ElementTree.SubElement(case, "skipped", message=_xml(f"{result.status}: {result.detail}"))
    ElementTree.ElementTree(suite).write(file, encoding="utf-8", xml_declaration=True)


def _xml(text: str) -> str:
    """The text without the control characters that XML cannot hold."""
    return "".join(character if character >= " " or character in "\n\t" else "?" for character in text)
