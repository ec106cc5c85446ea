"""torch's scaler and ours run the same random programs and must be indistinguishable after every operation."""

import pytest
import torch

import ampscaler
from differential.program import OPERATIONS, make_program, run

PROGRAMS = 400
BATCH = 50


def first_difference(seed, scaler_class):
    """A description of the first operation that went differently, or None; and the names of the operations that ran."""
    plan, operations = make_program(seed)
    ran = []
    pair = (run(cls, plan, operations, seed) for cls in (torch.amp.GradScaler, scaler_class))
    for theirs, ours in zip(*pair, strict=True):
        ran.append(theirs[0])
        if theirs != ours:
            history = "\n  ".join(ran)
            return (
                f"seed {seed}, {plan}\n  {history}\nexpected {theirs[1:]}\ngot      {ours[1:]}",
                ran,
            )
    return None, ran


@pytest.mark.parametrize("start", range(0, PROGRAMS, BATCH))
def test_random_programs_run_alike(start):
    for seed in range(start, start + BATCH):
        difference, _ = first_difference(seed, ampscaler.GradScaler)
        assert difference is None, difference


def test_the_programs_reach_every_operation_and_both_outcomes():
    names, kinds = set(), set()
    for seed in range(PROGRAMS):
        plan, operations = make_program(seed)
        for name, result, _ in run(torch.amp.GradScaler, plan, operations, seed):
            names.add(name.split(" ")[0])
            kinds.add(result[0][0])
    assert names >= set(OPERATIONS)
    assert kinds == {"value", "error"}


def test_the_programs_take_the_cpp_path(monkeypatch):
    answers = []
    original = ampscaler._C.unscale_param_groups

    def spy(*arguments):
        answers.append(original(*arguments))
        return answers[-1]

    monkeypatch.setattr(ampscaler._C, "unscale_param_groups", spy)
    for seed in range(BATCH):
        first_difference(seed, ampscaler.GradScaler)
    taken = sum(bool(answer) for answer in answers)
    assert taken > 0.2 * len(answers) > 0
    assert taken < len(answers)


class ForgetsNan(ampscaler.GradScaler):
    """A wrong scaler: it lets NaN pass."""

    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
        flags = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        return {device: torch.zeros_like(flag) for device, flag in flags.items()}


class BumpsVersions(ampscaler.GradScaler):
    """A wrong scaler: it multiplies with an operator that bumps version counters."""

    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
        flags = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if isinstance(parameter, torch.Tensor) and parameter.grad is not None:
                    parameter.grad.mul_(1.0)
        return flags


@pytest.mark.parametrize("wrong", [ForgetsNan, BumpsVersions])
def test_the_programs_notice_a_wrong_scaler(wrong):
    assert any(first_difference(seed, wrong)[0] for seed in range(BATCH))
