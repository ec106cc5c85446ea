"""The contract is complete, and the two generated files say what it says: docs/parity.md and scenarios.trace."""

import re

import pytest

import parity
import trace_scenarios
from ampscaler.conformance import all_behaviours
from ampscaler.conformance.differences import CPP_CLASS_DIFFERENCES, CPP_CLASS_UNSEEN_DIFFERENCES

# How many behaviours of torch's scaler each section of the contract has.
FACTS = {1: 6, 2: 10, 3: 6, 4: 16, 5: 19, 6: 13, 7: 15, 8: 6, 9: 4, 10: 4, 11: 14, 12: 9, 13: 28, 14: 3, 15: 9}
WARTS = 25
IDS = [f"S{section}.{n}" for section, count in FACTS.items() for n in range(1, count + 1)]
IDS += [f"W{n}" for n in range(1, WARTS + 1)]


def test_the_contract_has_every_id():
    assert len(IDS) == 162 + 25
    assert [b.id for b in all_behaviours() if not b.id.startswith("U")] == IDS


@pytest.mark.parametrize("id", IDS)
def test_the_parity_table_has_the_id(id):
    row = rf"^\| {re.escape(id)} \| .+ \| same \| .+ \| `\w+::\w+` \|$"
    assert len(re.findall(row, parity.FILE.read_text(), re.MULTILINE)) == 1


def test_the_parity_table_is_up_to_date():
    assert parity.FILE.read_text() == parity.generate(), "make contract"


@pytest.mark.default_torch  # the scenarios visit whatever fused optimizers there are
def test_the_recorded_scenarios_are_up_to_date():
    assert trace_scenarios.FILE.read_text() == trace_scenarios.generate(), "make contract"


def test_unproven_behaviours_are_about_a_device():
    for behaviour in all_behaviours():
        if behaviour.id.startswith("U"):
            assert behaviour.only_on and behaviour.proven_on == (), behaviour.id


def test_differences_are_of_the_contract_and_have_reasons():
    assert set(CPP_CLASS_DIFFERENCES) <= set(IDS)
    assert all(len(reason.split()) > 3 for reason in CPP_CLASS_DIFFERENCES.values())
    private = {behaviour.id for behaviour in all_behaviours() if behaviour.private}
    assert not private & set(CPP_CLASS_DIFFERENCES)


def test_differences_that_the_suite_cannot_see_are_of_behaviours_that_it_does_not_check():
    checked = {b.id for b in all_behaviours() if not b.private and b.proven_on != ()}
    everything = {behaviour.id for behaviour in all_behaviours()}
    assert set(CPP_CLASS_UNSEEN_DIFFERENCES) <= everything - checked
