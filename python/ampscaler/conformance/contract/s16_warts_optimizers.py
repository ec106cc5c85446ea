"""Section 16, the defects of torch's scaler that show in optimizers: fused ones, closures, reused addresses.

Whoever replaces the scaler should behave the same; each sentence says what happens and what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ampscaler.conformance.case import Case, NotApplicable
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF
from ampscaler.conformance.tools_texts import NOTHING_TO_STEP_BY, NOTHING_TO_UPDATE_BY, STEPPED_TWICE


class _Disk(Exception):
    """What the optimizers of this file raise."""


class _Watcher(torch.optim.SGD):
    """Handles the scale itself, by changing nothing, and keeps the flag that it was given."""

    _step_supports_amp_scaling = True
    found_inf: Any = None
    seen: Any = None

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.seen = self.found_inf


def _set_gradients(case: Case, optimizer: Any, value: float) -> None:
    for parameter in case.parameters(optimizer):
        parameter.grad = torch.full_like(parameter, value)


def _rounded(case: Case, optimizer: Any) -> list[list[float]]:
    return [[round(value, 4) for value in values] for values in case.values(optimizer)]


def _fused_sgd_after_a_skip(case: Case, between: Callable[[dict[str, Any]], None], **options: Any) -> list[list[float]]:
    """The parameters after a skipped first step and one with the gradient 1. `between` gets the optimizer's state."""
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd([INF, INF], **{"lr": 0.1, "momentum": 0.9, **options})
    scaler.step(optimizer)
    scaler.update(4.0)
    between(optimizer.state[case.parameters(optimizer)[0]])
    _set_gradients(case, optimizer, 4.0)
    scaler.step(optimizer)
    return _rounded(case, optimizer)


@behaviour(
    "W1",
    "Where a skipped step was the first one of a fused SGD with momentum, memory that nobody has written becomes "
    "its momentum; the buffer should not exist yet",
    proven_on=("cpu",),
)
def a_skipped_first_step_makes_momentum_of_garbage(case: Case) -> None:
    right = [[0.9, 0.9]]
    case.equal(_fused_sgd_after_a_skip(case, lambda state: None, fused=False), right, "without fused")
    case.equal(_fused_sgd_after_a_skip(case, lambda state: None, fused=True, momentum=0.0), right, "without momentum")

    def full_of_777(state: dict[str, Any]) -> None:
        state["momentum_buffer"].fill_(777.0)  # stands for what the memory held

    def dropped(state: dict[str, Any]) -> None:
        del state["momentum_buffer"]

    def zeroed(state: dict[str, Any]) -> None:
        state["momentum_buffer"].zero_()

    case.equal(_fused_sgd_after_a_skip(case, full_of_777, fused=True), [[-69.03, -69.03]], "where the memory held 777")
    case.equal(_fused_sgd_after_a_skip(case, dropped, fused=True, dampening=0.5), right, "with the buffer dropped")
    case.equal(
        _fused_sgd_after_a_skip(case, zeroed, fused=True, dampening=0.5), [[0.95, 0.95]], "with the buffer zeroed"
    )

    torch.use_deterministic_algorithms(True)  # fills new memory with NaN
    if not torch.empty(1, device=case.device).isnan().item():
        raise NotApplicable("torch.utils.deterministic.fill_uninitialized_memory is off: new memory may hold anything")
    case.equal(
        _fused_sgd_after_a_skip(case, lambda state: None, fused=True), [[math.nan, math.nan]], "where it held NaN"
    )
    scaler, optimizer = case.ready_scaler(4.0), case.sgd([4.0, 4.0], lr=0.1, momentum=0.9, fused=True)
    scaler.step(optimizer)
    case.equal(_rounded(case, optimizer), right, "after a first step that was not skipped")
    scaler.update()
    _set_gradients(case, optimizer, INF)
    scaler.step(optimizer)
    case.equal(_rounded(case, optimizer), right, "after a skip that was not the first step")


def _adam(case: Case, gradient: float) -> Any:
    return case.optimizer(torch.optim.Adam([case.parameter([gradient, gradient])], 0.1, fused=True))


def _adam_step(case: Case, optimizer: Any) -> float:
    return float(optimizer.state[case.parameters(optimizer)[0]]["step"].item())


@behaviour(
    "W2",
    "The flags of several devices are added, and a fused optimizer skips on exactly 1 only, so that infs on two "
    "devices make it step; their maximum would be right",
    private=True,
    proven_on=("cpu",),
)
def infs_on_two_devices_are_no_inf(case: Case) -> None:
    for flag, value, steps in ((1.0, 1.0, 0.0), (2.0, 0.9, -1.0)):
        optimizer = _adam(case, 8.0)
        optimizer.found_inf = case.tensor(flag)
        optimizer.step()
        case.equal(_rounded(case, optimizer), [[value, value]], f"parameter where found_inf is {flag}")
        case.equal(_adam_step(case, optimizer), steps, f"Adam's count of steps where found_inf is {flag}")
    scaler, optimizer = case.ready_scaler(4.0), _adam(case, 8.0)
    scaler.unscale_(optimizer)
    scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {
        case.device: case.tensor(1.0),
        "another device": case.tensor(1.0),
    }
    scaler.step(optimizer)
    case.equal(_rounded(case, optimizer), [[0.9, 0.9]], "parameter with two flags of 1, where 1 would be right")
    case.equal(_adam_step(case, optimizer), -1.0, "Adam's count of steps, where 0 would be right")


@behaviour(
    "U16.1",
    "With infs on the CPU and on the accelerator a fused optimizer is given the flag 2, on which it does not skip; "
    "1 would be right",
    proven_on=(),
    only_on="cuda",
)
def infs_on_two_real_devices_add_up(case: Case) -> None:
    on_cpu = torch.nn.Parameter(torch.ones(1))
    on_cpu.grad = torch.tensor([INF])
    optimizer, scaler = _Watcher([on_cpu, case.parameter([INF])]), case.ready_scaler(4.0)
    scaler.step(case.optimizer(optimizer))
    case.equal(optimizer.seen.item(), 2.0, "found_inf")


def _failing_step(case: Case, scaler: Any, optimizer: Any) -> None:
    """scaler.step where the optimizer raises; afterwards the optimizer works again."""

    def step() -> None:
        raise _Disk("disk full")

    optimizer.step = step
    case.raises(_Disk, "disk full", scaler.step, optimizer)
    del optimizer.step


@behaviour(
    "W3",
    "A fused optimizer that raises keeps grad_scale and found_inf: a retry divides by the square of the scale, and "
    "so do later iterations; both attributes should go in any case",
)
def a_fused_step_that_raises_squares_the_scale(case: Case) -> None:
    scaler, optimizer = case.ready_scaler(4.0), case.sgd([8.0], fused=True)
    _failing_step(case, scaler, optimizer)
    scaler.step(optimizer)
    case.equal(case.gradients(optimizer), [[0.5]], "gradient after a retry, where 2 would be right")
    case.equal(case.values(optimizer), [[0.5]], "parameter after a retry, where -1 would be right")

    scaler, optimizer = case.ready_scaler(4.0), case.sgd([8.0], fused=True)
    _failing_step(case, scaler, optimizer)
    scaler.update()
    scaler.step(optimizer)
    case.equal(case.gradients(optimizer), [[0.5]], "gradient in the iteration after, where 2 would be right")

    scaler, optimizer = case.ready_scaler(4.0), case.sgd([8.0], fused=True)
    _failing_step(case, scaler, optimizer)
    scaler.update()
    scaler.unscale_(optimizer)
    case.equal(case.gradients(optimizer), [[2.0]], "gradient after unscale_ in the iteration after")
    scaler.step(optimizer)
    case.equal(case.gradients(optimizer), [[0.5]], "gradient after unscale_ and step, where 2 would be right")

    scaler, optimizer = case.ready_scaler(4.0), case.sgd([INF], fused=True)
    _failing_step(case, scaler, optimizer)
    scaler.update()
    for _ in range(2):
        _set_gradients(case, optimizer, 1.0)
        optimizer.step()
        case.equal(
            case.values(optimizer), [[1.0]], "parameter after a plain optimizer.step(), where a change would be right"
        )


@behaviour(
    "W12",
    "A closure given by position is passed on, but the gradients that it makes are applied with the scale still in "
    "them; it should be refused as the keyword is, or be unscaled",
)
def a_positional_closure_applies_scaled_gradients(case: Case) -> None:
    scaler, optimizer = case.ready_scaler(4.0), case.sgd([4.0])

    def closure() -> str:
        _set_gradients(case, optimizer, 4.0)
        return "loss"

    case.equal(case.returned(scaler.step(optimizer, closure)), "loss", "what step returns")
    case.equal(case.values(optimizer), [[-3.0]], "parameter, where 0 would be right")


def _at_the_address_of_a_deleted_one(case: Case, scaler: Any) -> Any:
    """Steps optimizers and deletes them until a new one lies where a deleted one lay."""
    parameters = [case.parameter([4.0]) for _ in range(100)]
    addresses: set[int] = set()
    for parameter in parameters:
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        if id(optimizer) in addresses:
            return optimizer
        scaler.step(optimizer)  # not recorded: a record would keep the optimizer
        addresses.add(id(optimizer))
        del optimizer
    raise NotApplicable("no optimizer came to lie at the address of a deleted one in 100 attempts")


@behaviour(
    "W14",
    "A new optimizer at the address of a deleted one inherits its stage, so that its first step is refused; it "
    "should start afresh",
)
def a_reused_address_inherits_the_stage(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    if case.private:
        old, new = case.sgd([4.0]), case.sgd([4.0])
        scaler.step(old)
        states = scaler._per_optimizer_states
        states[id(new)] = states.pop(id(old))
    else:
        new = _at_the_address_of_a_deleted_one(case, case.raw(scaler))
    case.raises(RuntimeError, STEPPED_TWICE, scaler.step, new)
    case.equal(case.values(new), [[1.0]], "parameter of the new optimizer, where 0 would be right")
    scaler.update()
    scaler.step(new)
    case.equal(case.values(new), [[0.0]], "parameter after the next iteration")


@behaviour(
    "W16",
    "step() takes a fused optimizer without gradients, with the int 0 for found_inf, and update() fails; with other "
    "optimizers step() fails; both should do the same",
)
def fused_without_gradients_fails_late(case: Case) -> None:
    scaler, optimizer = case.ready_scaler(4.0), case.sgd(None)
    case.raises(AssertionError, NOTHING_TO_STEP_BY, scaler.step, optimizer)
    scaler = case.ready_scaler(4.0)
    optimizer = case.optimizer(torch.optim.Adam([case.parameter(None)], fused=True))
    scaler.step(optimizer)
    case.raises(AssertionError, NOTHING_TO_UPDATE_BY, scaler.update)
    scaler, watcher = case.ready_scaler(4.0), _Watcher([case.parameter(None)])
    scaler.step(case.optimizer(watcher))
    case.equal(watcher.seen, 0, "found_inf")


@behaviour(
    "W17",
    "step() fails where the user has set a fused optimizer's grad_scale to None, and removes a grad_scale of the "
    "user's after one step; it should be read as 1 and be put back",
)
def the_users_grad_scale_is_lost(case: Case) -> None:
    scaler, optimizer = case.ready_scaler(4.0), case.sgd([16.0], fused=True)
    optimizer.grad_scale = case.tensor(2.0)
    scaler.step(optimizer)
    case.equal(case.gradients(optimizer), [[2.0]], "gradient 16 at the scale 4 with a grad_scale of 2")
    case.true(not hasattr(optimizer, "grad_scale"), "the user's grad_scale is gone")
    scaler.update()
    _set_gradients(case, optimizer, 16.0)
    scaler.step(optimizer)
    case.equal(case.gradients(optimizer), [[4.0]], "gradient in the next iteration, where 2 would be right")
    scaler, optimizer = case.ready_scaler(4.0), case.sgd([16.0], fused=True)
    optimizer.grad_scale = None
    case.raises(TypeError, None, scaler.step, optimizer)
