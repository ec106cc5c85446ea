"""Runs behaviours on a subject and says for each what came out."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Iterable, Mapping

import torch

from ampscaler.conformance.case import Case, Difference, NotApplicable, isolated
from ampscaler.conformance.registry import Behaviour
from ampscaler.conformance.subject import Subject

PASS = "pass"
FAIL = "fail"
DIFFERENT = "different"  # declared, with its reason
FOUND = "found"  # unproven on this device: what was seen instead
NOT_APPLICABLE = "n/a"
STATUSES = (PASS, FAIL, DIFFERENT, FOUND, NOT_APPLICABLE)


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of one behaviour: a status of STATUSES, a sentence, and the calls that led to a difference."""

    behaviour: Behaviour
    status: str
    detail: str = ""
    calls: tuple[str, ...] = ()


def run(
    behaviours: Iterable[Behaviour],
    subject: Subject,
    device: torch.device | str = "cpu",
    differences: Mapping[str, str] | None = None,
) -> list[Result]:
    """Runs the behaviours in order. `differences`: id to reason, for what the subject is meant to do otherwise.

    A declared difference that is none is a failure: the list would be stale.
    """
    where = torch.device(device)
    return [_run_one(behaviour, subject, where, differences or {}) for behaviour in behaviours]


def _run_one(behaviour: Behaviour, subject: Subject, device: torch.device, differences: Mapping[str, str]) -> Result:
    reason = _not_applicable(behaviour, subject, device)
    if reason:
        return Result(behaviour, NOT_APPLICABLE, reason)
    case = Case(subject, device)
    try:
        with isolated():
            behaviour.check(case)
    except NotApplicable as error:
        return Result(behaviour, NOT_APPLICABLE, str(error))
    except Difference as error:
        failure = Result(behaviour, FAIL, str(error), tuple(case.log.lines()))
    except (Exception, SystemExit) as error:  # a scaler that ends the program would end the report
        failure = Result(behaviour, FAIL, _unexpected(error, behaviour), tuple(case.log.lines()))
    else:
        if behaviour.id in differences:
            stale = f"listed as different ({differences[behaviour.id]}), but it behaves as torch"
            return Result(behaviour, FAIL, stale)
        return Result(behaviour, PASS)
    if behaviour.id in differences:
        return dataclasses.replace(failure, status=DIFFERENT, detail=differences[behaviour.id])
    if not behaviour.is_proven_on(device.type):
        return dataclasses.replace(failure, status=FOUND)
    return failure


def _not_applicable(behaviour: Behaviour, subject: Subject, device: torch.device) -> str:
    if behaviour.only_on not in (None, device.type):
        return f"about {behaviour.only_on} only"
    if subject.scaler_class is None and not behaviour.operators:
        return "needs a scaler"
    if behaviour.private and not subject.is_private:
        return "about torch's private names, which this class does not have"
    return ""


def _unexpected(error: BaseException, behaviour: Behaviour) -> str:
    source = behaviour.check.__code__.co_filename
    lines = [frame.line for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source]
    return f"unexpected {type(error).__name__}: {error}" + (f" at: {lines[-1]}" if lines else "")
