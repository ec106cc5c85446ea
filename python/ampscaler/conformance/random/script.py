"""Writes a program that went differently as a complete Python script."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import torch

from ampscaler.conformance.random import optimizers
from ampscaler.conformance.random.training import Statement
from ampscaler.conformance.random.world import Observation

#: Differences shown of one statement.
SHOWN = 5


def write_script(
    scaler_class: Any,
    seed: int,
    program: Sequence[Statement],
    expected: Sequence[Observation],
    got: Sequence[Observation],
) -> str:
    """The program, and at its last statement what was expected and got. Switching `Scaler` there shows both."""
    body = [_line(statement.text, seen) for statement, seen in zip(program[:-1], expected[:-1], strict=True)]
    body += _last(program[-1].text, expected[-1], got[-1])
    text = "\n".join(body)
    return "\n".join([*_head(scaler_class, seed, text), "", text, ""])


def _head(scaler_class: Any, seed: int, body: str) -> list[str]:
    used = set(re.findall(r"\w+", body))
    modules = [name for name in ("contextlib", "copy", "pickle", "warnings") if re.search(rf"\b{name}\.", body)]
    helpers = sorted(name for name, value in vars(optimizers).items() if isinstance(value, type) and name in used)
    shown = sorted({"entries", "show"} & used)
    outer, _, inner = scaler_class.__qualname__.partition(".")
    lines = [
        f"# torch {torch.__version__}, seed {seed}: {scaler_class.__qualname__} differs from torch.amp.GradScaler."
    ]
    lines += [*(f"import {name}" for name in modules), "", "import torch", ""]
    lines += [f"from ampscaler.conformance.random.optimizers import {', '.join(helpers)}"] * bool(helpers)
    lines += [f"from ampscaler.conformance.random.snapshot import {', '.join(shown)}"] * bool(shown)
    lines += [f"from {scaler_class.__module__} import {outer} as Scaler"]
    lines += [f"Scaler = Scaler.{inner}"] * bool(inner)
    lines += ["# Scaler = torch.amp.GradScaler  # gives what is expected"]
    if "warnings" in modules:
        lines += ["torch.set_warn_always(True)"]
    lines += ['inf, nan = float("inf"), float("nan")'] * bool({"inf", "nan"} & used)
    return lines + ["calls = []"] * ("calls" in used)


def _line(text: str, observation: Observation) -> str:
    if not observation.raised:
        return text
    return (
        f"with contextlib.suppress(Exception):  # {observation.result.splitlines()[0]}\n{textwrap.indent(text, '    ')}"
    )


def _last(text: str, expected: Observation, got: Observation) -> list[str]:
    lines: list[str] = []
    before = [key for key in {*expected.replaced, *got.replaced} if (key in expected.replaced) != (key in got.replaced)]
    lines += [f"before{number} = {key}" for number, key in enumerate(sorted(before))]
    results = expected.result != got.result
    lines.append(_observed(text, results, expected.raised or got.raised, expected.warned != got.warned))
    pairs = [("result", expected.result, got.result)] if results else []
    if expected.warned != got.warned:
        pairs.append(("[w.message for w in caught]", expected.warned or "list()", got.warned or "list()"))
    for number, key in enumerate(sorted(before)):
        pairs.append((f"{key} is before{number}", str(key not in expected.replaced), str(key not in got.replaced)))
    for key in expected.seen | got.seen:
        theirs, ours = expected.seen.get(key), got.seen.get(key)
        if theirs != ours:
            pairs.append((key, theirs, ours) if theirs and ours else _missing(key, theirs, ours))
    for key, theirs, ours in pairs[:SHOWN]:
        lines += [f"print(show({key}))", f"# expected: {_comment(theirs)}", f"# got:      {_comment(ours)}"]
    return lines


def _missing(key: str, theirs: str | None, ours: str | None) -> tuple[str, str, str]:
    """What to print where something can be seen in one world only."""
    owner, _, name = key.rpartition(".")
    if key == "calls" or name.startswith("get("):
        nothing = "list()" if key == "calls" else "None"
        return key, theirs or nothing, ours or nothing
    # The scaler itself may be missing, where only one of the constructors raised.
    exists = f"hasattr(globals().get('{owner}'), '{name.removesuffix('()')}')"
    return exists, str(theirs is not None), str(ours is not None)


def _comment(text: str) -> str:
    return text.replace("\n", "\n#           ")


def _observed(text: str, result: bool, raised: bool, warned: bool) -> str:
    """The last statement, with what must be kept of it for the prints that follow."""
    if result and not re.match(
        r"(with|class|del|scaler|other|loss|[po]\d|scaler, other)\b[^(]* = |(with|class|del) ", text
    ):
        text = f"result = {text}"
    if raised:
        text = f"try:\n{textwrap.indent(text, '    ')}\nexcept Exception as error:\n    result = error"
    if warned:
        text = textwrap.indent(f"warnings.simplefilter('always')\n{text}", "    ")
        text = f"with warnings.catch_warnings(record=True) as caught:\n{text}"
    return text
