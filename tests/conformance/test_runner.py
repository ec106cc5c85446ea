"""What the runner makes of behaviours that pass, differ, raise, or are unproven; and how calls are shown."""

import pathlib
import re

import pytest
import torch

from ampscaler.conformance import Behaviour, Case, NotApplicable, find_subject, report, run
from ampscaler.conformance.runner import DIFFERENT, FAIL, FOUND, NOT_APPLICABLE, PASS
from ampscaler.conformance.subject import TORCH_SCALER
from ampscaler.conformance.values import bits, canonical, show

SUBJECT = find_subject(TORCH_SCALER)


def passes(case: Case) -> None:
    case.equal(case.new_scaler(4.0).get_scale(), 4.0)


def differs(case: Case) -> None:
    case.equal(case.ready_scaler(4.0).get_scale(), 5.0, "scale")


def raises(case: Case) -> None:
    case.ready_scaler(4.0).no_such_method()


def cannot(case: Case) -> None:
    raise NotApplicable("there is none here")


def result_of(check, differences=None, **options):
    (result,) = run([Behaviour("S3.99", "A sentence", check, **options)], SUBJECT, "cpu", differences)
    return result


@pytest.mark.parametrize(
    ("check", "options", "status", "detail"),
    [
        (passes, {}, PASS, ""),
        (differs, {}, FAIL, "scale: expected 5.0, got 4.0"),
        (
            raises,
            {},
            FAIL,
            "unexpected AttributeError: 'GradScaler' object has no attribute 'no_such_method' at: case.",
        ),
        (cannot, {}, NOT_APPLICABLE, "there is none here"),
        (differs, {"proven_on": ()}, FOUND, "scale: expected 5.0, got 4.0"),
        (passes, {"proven_on": ()}, PASS, ""),
        (passes, {"only_on": "cuda"}, NOT_APPLICABLE, "about cuda only"),
        (differs, {"differences": {"S3.99": "on purpose"}}, DIFFERENT, "on purpose"),
        (passes, {"differences": {"S3.99": "on purpose"}}, FAIL, "listed as different (on purpose)"),
    ],
)
def test_the_status(check, options, status, detail):
    result = result_of(check, **options)
    assert result.status == status
    assert result.detail.startswith(detail)


def test_a_failure_is_shown_before_a_finding():
    table = report.table([result_of(differs, proven_on=()), result_of(raises)])
    assert "unexpected AttributeError" in table.split("first difference")[1]


def calls_of(check):
    case = Case(SUBJECT, torch.device("cpu"))
    check(case)
    return case.log.lines()


def test_calls_are_shown_with_names_values_and_errors():
    def check(case):
        scaler, optimizer = case.ready_scaler(4.0), case.sgd([8.0])
        scaler.step(optimizer)
        case.raises(RuntimeError, None, scaler.step, optimizer)
        scaler.growth = [optimizer], (optimizer,)
        scaler.scale((case.tensor(1.0),))

    assert calls_of(check) == [
        "scaler1 = GradScaler(device='cpu', init_scale=4.0)",
        "scaler1.scale(tensor(1.0, dtype=float32))  -> tensor(4.0, dtype=float32)",
        "optimizer1: SGD, gradients [tensor([8.0], dtype=float32)]",
        "scaler1.step(optimizer1)",
        "scaler1.step(optimizer1)  raises RuntimeError: step() has already been called since the last update().",
        "scaler1.growth = ([optimizer1], (optimizer1,))",
        "scaler1.scale((tensor(1.0, dtype=float32),))  -> (tensor(4.0, dtype=float32),)",
    ]


def test_a_tensor_that_changed_after_the_call_is_marked():
    def check(case):
        scaler = case.ready_scaler(4.0)
        scaler._get_scale_async()
        scaler.update(16.0)

    assert calls_of(check)[2].endswith("-> tensor(16.0, dtype=float32) (changed in place since)")


def test_values_compare_by_bits_types_and_places():
    assert canonical(torch.tensor(0.0)) != canonical(torch.tensor(-0.0))
    assert canonical(torch.tensor(1.0)) != canonical(torch.tensor(1.0, dtype=torch.float64))
    assert canonical(torch.ones(1)) != canonical(torch.ones(()))
    assert canonical(1) != canonical(1.0) != canonical(True)
    assert canonical([1]) != canonical((1,))
    payloads = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert bits(payloads[:1]) == bits(payloads[1:])


def test_tensors_elsewhere_can_be_shown():
    with torch._subclasses.FakeTensorMode():
        assert show(torch.ones(3, device="cuda")).startswith("FakeTensor(shape=(3,)")


def test_the_example_of_the_documentation_holds():
    page = pathlib.Path(__file__).parents[2] / "docs/conformance.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    written = []

    def behaviour(id, sentence):
        return lambda check: written.append(Behaviour(id, sentence, check))

    exec(code, {"behaviour": behaviour, "Case": Case})
    (result,) = run(written, SUBJECT)
    assert result.status == PASS
    assert result.behaviour.section == 4
