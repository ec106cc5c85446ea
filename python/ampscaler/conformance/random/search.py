"""Looks for a program that goes differently on torch's scaler and on the scaler under test, and makes it short."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import hypothesis
import hypothesis.configuration
import torch
from hypothesis import HealthCheck, Phase, Verbosity

from ampscaler.conformance.case import isolated
from ampscaler.conformance.random.script import write_script
from ampscaler.conformance.random.statements import Program, programs
from ampscaler.conformance.random.training import Statement
from ampscaler.conformance.random.world import MODULE, Observation, World
from ampscaler.conformance.subject import ATEN, Subject, find_operators


class Ran(NamedTuple):
    """The statements of a program as far as they ran, and what each did in the two worlds; the last may differ."""

    program: Program
    expected: list[Observation]
    got: list[Observation]

    @property
    def differs(self) -> bool:
        """True if the last statement went differently."""
        return self.expected[-1:] != self.got[-1:]


@dataclasses.dataclass
class Outcome:
    """What ran: programs, statements, how often each kind returned and raised; and the script of a difference."""

    programs: int = 0
    statements: int = 0
    raised: int = 0
    kinds: collections.Counter[tuple[str, bool]] = dataclasses.field(default_factory=collections.Counter)
    script: str | None = None

    def add(self, ran: Ran) -> None:
        """Counts a program."""
        self.programs += 1
        self.statements += len(ran.expected)
        self.raised += sum(observation.raised for observation in ran.expected)
        self.kinds.update((s.kind, o.raised) for s, o in zip(ran.program, ran.expected, strict=True))


class ProgramDiffers(Exception):
    """A program went differently."""


def lock_step(scaler_class: Any, private: bool, program: Program) -> Ran:
    """Runs a program on torch's scaler and on another, up to the first difference or a constructor that raises."""
    torch.manual_seed(0)
    theirs, ours = World(torch.amp.GradScaler, private), World(scaler_class, private)
    expected: list[Observation] = []
    got: list[Observation] = []
    for statement in program:
        expected.append(theirs.run(statement.text))
        got.append(ours.run(statement.text))
        if expected[-1] != got[-1] or (statement.kind == "construct" and expected[-1].raised):
            break
    return Ran(program[: len(expected)], expected, got)


def search(scaler_class: Any, count: int, seed: int, device: str) -> Outcome:
    """Runs up to `count` programs, stops at the first that goes differently, and shortens it. See run_random."""
    private = Subject(scaler_class.__name__, scaler_class, find_operators(*ATEN)).is_private
    outcome = Outcome()
    failures: list[Ran] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @hypothesis.given(programs(device, private))
    def agree(program: Program) -> None:
        ran = lock_step(scaler_class, private, program)
        if not failures:
            outcome.add(ran)
        if ran.differs:
            failures[:] = [ran]
            raise ProgramDiffers

    with isolated(), _no_folder_left_behind():
        try:
            # Flaky: the program that failed does not fail every time. It is shown all the same.
            with contextlib.suppress(ProgramDiffers, hypothesis.errors.Flaky):
                agree()
            if failures:
                # Hypothesis runs the simplest program last.
                ran = _shortened(scaler_class, private, failures[0])
                outcome.script = write_script(scaler_class, seed, ran.program, ran.expected, ran.got)
        finally:
            sys.modules.pop(MODULE, None)
    return outcome


@contextlib.contextmanager
def _no_folder_left_behind() -> Iterator[None]:
    """Hypothesis would write a folder where the command runs."""
    with tempfile.TemporaryDirectory() as folder:
        hypothesis.configuration.set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            hypothesis.configuration.set_hypothesis_home_dir(None)


def _shortened(scaler_class: Any, private: bool, ran: Ran) -> Ran:
    """The same without every parameter, optimizer and statement that the difference can do without."""
    for name in sorted({name for statement in ran.program for name in re.findall(r"\b[op]\d\b", statement.text)}):
        candidate = lock_step(scaler_class, private, _without(name, ran.program))
        ran = candidate if candidate.differs else ran
    for position in reversed(range(len(ran.program) - 1)):
        candidate = lock_step(scaler_class, private, ran.program[:position] + ran.program[position + 1 :])
        ran = candidate if candidate.differs else ran
    return ran


def _without(name: str, program: Program) -> Program:
    """The program with that name taken from all lists, and without the statements that still use it."""
    taken = [Statement(kind, re.sub(rf"\b{name}, |, {name}\b", "", text)) for kind, text in program]
    return [statement for statement in taken if not re.search(rf"\b{name}\b", statement.text)]
