"""The suite can fail: it rejects every deliberately wrong scaler, in the sections where the defect belongs."""

import importlib
import pkgutil

import pytest
import torch

import wrong_scalers
from ampscaler.conformance import all_behaviours, find_operators, run
from ampscaler.conformance.runner import FAIL
from ampscaler.conformance.subject import ATEN, Subject


def wrong_classes():
    for module in pkgutil.iter_modules(wrong_scalers.__path__):
        for item in vars(importlib.import_module(f"wrong_scalers.{module.name}")).values():
            if isinstance(item, type) and "sections" in vars(item):
                yield item


WRONG = list(wrong_classes())
CONTRACT = all_behaviours()


def test_there_are_enough_of_them():
    assert len(WRONG) >= 24
    assert len({cls.__name__ for cls in WRONG}) == len(WRONG)
    assert all(issubclass(cls, torch.amp.GradScaler) and cls.__doc__ for cls in WRONG)


@pytest.mark.parametrize("cls", WRONG, ids=lambda cls: cls.__name__)
def test_the_suite_rejects_it(cls):
    subject = Subject(cls.__name__, cls, find_operators(*ATEN))
    behaviours = [behaviour for behaviour in CONTRACT if behaviour.section in cls.sections]
    rejected = {result.behaviour.section for result in run(behaviours, subject) if result.status == FAIL}
    assert rejected == set(cls.sections)
