"""Every behaviour of the contract on torch's own scaler, on the drop-in and on the C++ class."""

import pytest

from ampscaler.conformance import all_behaviours, find_operators, find_subject, run
from ampscaler.conformance.differences import DIFFERENCES
from ampscaler.conformance.report import in_full
from ampscaler.conformance.runner import DIFFERENT, NOT_APPLICABLE, PASS
from ampscaler.conformance.subject import AMPSCALER, ATEN, CPP_CLASS, DROP_IN, TORCH_SCALER, Subject

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
CONTRACT = all_behaviours()


def outcome(behaviour, subject, device):
    (result,) = run([behaviour], subject, device, DIFFERENCES.get(subject.name))
    return result


def check(result, device, expected=PASS):
    """The result is as expected; where nobody has proven the sentence the test is skipped, and says what was seen."""
    if result.behaviour.only_on not in (None, device) or not result.behaviour.is_proven_on(device):
        pytest.skip(f"{result.status}: {result.detail or 'the sentence holds'}")
    assert result.status == expected, in_full(result)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("behaviour", CONTRACT, ids=lambda b: b.id)
@pytest.mark.parametrize("name", [TORCH_SCALER, DROP_IN])
def test_a_python_scaler_does_it(name, behaviour, device):
    check(outcome(behaviour, find_subject(name), device), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("behaviour", [b for b in CONTRACT if not b.private], ids=lambda b: b.id)
def test_the_cpp_class_does_it_or_is_meant_to_differ(behaviour, device):
    expected = DIFFERENT if behaviour.id in DIFFERENCES[CPP_CLASS] else PASS
    check(outcome(behaviour, find_subject(CPP_CLASS), device), device, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("behaviour", [b for b in CONTRACT if b.operators], ids=lambda b: b.id)
@pytest.mark.parametrize("names", [ATEN, AMPSCALER], ids=["aten", "ampscaler"])
def test_a_pair_of_operators_does_it(names, behaviour, device):
    check(outcome(behaviour, Subject(" ".join(names), None, find_operators(*names)), device), device)


def test_what_does_not_apply_to_the_cpp_class_is_about_private_names():
    subject = find_subject(CPP_CLASS)
    for behaviour in CONTRACT:
        if behaviour.private:
            assert outcome(behaviour, subject, "cpu").status == NOT_APPLICABLE
