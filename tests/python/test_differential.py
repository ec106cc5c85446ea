"""torch's scaler and ours run the same random programs and must be indistinguishable after every statement."""

import os
import subprocess
import sys

import pytest
import torch

import ampscaler
from ampscaler.conformance.random import run_random
from ampscaler.conformance.random.oddities import kinds
from ampscaler.conformance.random.search import lock_step
from ampscaler.conformance.random.snapshot import show
from ampscaler.conformance.random.training import OPTIMIZERS, SUBCLASSES, Statement
from ampscaler.conformance.random.world import World

PROGRAMS = 1000  # `make test-random` runs more
FEW = 200


@pytest.fixture(scope="module")
def outcome():
    return run_random(ampscaler.GradScaler, PROGRAMS, seed=1)


def test_random_programs_run_alike(outcome):
    assert outcome.script is None, outcome.script
    assert outcome.programs == PROGRAMS


def test_random_programs_of_public_calls_run_alike_on_the_cpp_class():
    outcome = run_random(ampscaler.AmpScaler, FEW, seed=1)
    assert outcome.script is None, outcome.script
    assert outcome.programs == FEW


def test_the_programs_reach_every_kind_of_statement_and_are_mostly_training(outcome):
    reached = {kind for kind, _ in outcome.kinds}
    assert reached >= {*kinds(private=True), *SUBCLASSES, *(f"{kind}_optimizer" for kind in OPTIMIZERS)}
    assert 0.02 < outcome.raised / outcome.statements < 0.2
    for kind in ("unscale_", "step", "update"):
        assert 0 < outcome.kinds[kind, True] < 0.6 * outcome.kinds[kind, False], kind


def test_the_programs_take_the_cpp_path(monkeypatch):
    answers = []
    original = ampscaler._C.unscale_param_groups

    def spy(*arguments):
        answers.append(original(*arguments))
        return answers[-1]

    monkeypatch.setattr(ampscaler._C, "unscale_param_groups", spy)
    run_random(ampscaler.GradScaler, 60, seed=3)
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


class ReplacesTheScale(ampscaler.GradScaler):
    """A wrong scaler: its update makes another tensor."""

    def update(self, new_scale=None):
        super().update(new_scale)
        self._scale = self._scale.clone() if self._enabled else None


class SaysItOtherwise(ampscaler.GradScaler):
    """A wrong scaler: the text of one error is another."""

    def unscale_(self, optimizer):
        try:
            super().unscale_(optimizer)
        except RuntimeError as error:
            raise RuntimeError(str(error).upper()) from None


def run_script(script):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def comments(script, head):
    return [line.removeprefix(head).strip() for line in script.splitlines() if line.startswith(head)]


@pytest.mark.parametrize("wrong", [ForgetsNan, BumpsVersions, ReplacesTheScale, SaysItOtherwise])
def test_a_wrong_scaler_is_noticed_and_the_script_shows_it(wrong):
    script = run_random(wrong, PROGRAMS, seed=4).script
    assert script is not None
    assert len([line for line in script.splitlines() if line and not line.startswith("#")]) <= 18, script
    assert run_script(script) == comments(script, "# got:")
    oracle = script.replace("# Scaler = torch", "Scaler = torch")
    assert oracle != script
    assert run_script(oracle) == comments(script, "# expected:")


def test_what_is_seen_can_be_printed_by_a_script():
    lines = [
        'scaler = Scaler("cpu", init_scale=4.0)',
        "p0 = torch.nn.Parameter(torch.ones(2))",
        "o0 = torch.optim.Adam([p0], lr=0.1, fused=True)",
        "p0.grad = torch.tensor([nan, 1.0])",
        "scaler.scale(torch.ones(()))",
        "calls.append(scaler.step(o0))",
    ]
    world = World(ampscaler.GradScaler, private=True)
    seen = [world.run(line) for line in lines][-1].seen
    assert len(seen) > 10
    names = vars(__import__("ampscaler.conformance.random.snapshot", fromlist=["show"])) | world.names
    assert seen == {key: show(eval(key, names)) for key in seen}


def test_the_two_worlds_share_nothing():
    program = [Statement("construct", 'scaler = Scaler("cpu")'), Statement("patch", "scaler.mine = calls")]
    ran = lock_step(
        ampscaler.GradScaler, True, [*program, Statement("get", "calls.append(1)"), Statement("get", "calls")]
    )
    assert not ran.differs
    assert ran.got[-1].result == "list(1)"


def test_without_hypothesis_the_command_says_what_to_install():
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'hypothesis' else find(name, *more)\n"
        "from ampscaler.conformance.__main__ import main; main(['--random', '3'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "random programs need the package hypothesis: pip install 'ampscaler[conformance]'" in done.stderr
