"""Failure: a loop of several networks where targets are rounded to fp16 and a target network follows skipped steps.

An actor-critic on a fixed batch: policy and value under fp16 autocast, the targets in float32 in a nested scope, one
scaler for two optimizers. The target network moves only where both steps were applied; prints how often that was.
"""

import copy
import dataclasses

import torch
from torch import nn

import ampscaler

ITERATIONS = 30
DISCOUNT = 0.99
RATE = 0.25  # of the soft update


@dataclasses.dataclass
class Batch:
    """Transitions of an environment."""

    states: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    next_states: torch.Tensor


@dataclasses.dataclass
class Report:
    """What happened in the iterations."""

    policy_applied: int = 0
    value_applied: int = 0
    both_applied: int = 0
    only_one_applied: int = 0
    soft_updates: int = 0
    target_moved_without_both: int = 0
    target_dtype: torch.dtype | None = None
    finite: bool = True
    scale: float = 0.0


class Learner:
    """Three networks, two optimizers, one scaler."""

    def __init__(self, init_scale: float) -> None:
        torch.manual_seed(0)
        self.policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
        self.value = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        self.target = copy.deepcopy(self.value).requires_grad_(False)
        self.policy_optimizer = torch.optim.SGD(self.policy.parameters(), lr=1e-2)
        self.value_optimizer = torch.optim.SGD(self.value.parameters(), lr=1e-2)
        self.scaler = ampscaler.AmpScaler("cpu", init_scale=init_scale)

    def losses(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Policy loss, value loss and the bootstrapped targets."""
        with torch.autocast("cpu", torch.float16):
            logits = self.policy(batch.states)
            values = self.value(batch.states).squeeze(1)
            with torch.autocast("cpu", enabled=False):
                # Returns are large and their differences small: see bootstrapped_value for what fp16 makes of them.
                targets = batch.rewards + DISCOUNT * self.target(batch.next_states.float()).squeeze(1)
                advantages = targets - values.detach().float()
                log_p = nn.functional.log_softmax(logits.float(), dim=-1)
            chosen = log_p.gather(1, batch.actions[:, None]).squeeze(1)
            policy_loss = -(chosen * advantages).mean()
            value_loss = nn.functional.mse_loss(values, targets)
        return policy_loss, value_loss, targets

    def step(self, policy_loss: torch.Tensor, value_loss: torch.Tensor) -> tuple[bool, bool]:
        """One step of both optimizers under one scale; says of each whether it was applied."""
        self.policy_optimizer.zero_grad()
        self.value_optimizer.zero_grad()
        self.scaler.scale(policy_loss).backward()
        self.scaler.scale(value_loss).backward()
        policy_result = self.scaler.step(self.policy_optimizer)
        value_result = self.scaler.step(self.value_optimizer)
        self.scaler.update()  # once: the scale backs off if either of them overflowed
        return policy_result.applied(), value_result.applied()

    def follow(self) -> None:
        """The soft update of the target network."""
        with torch.no_grad():
            for target, value in zip(self.target.parameters(), self.value.parameters(), strict=True):
                target.lerp_(value, RATE)


def make_batch() -> Batch:
    """64 transitions. The rewards are so large that the value network's gradients overflow long before the policy's."""
    generator = torch.Generator().manual_seed(0)
    states, next_states = torch.randn(2, 64, 4, generator=generator)
    return Batch(states, torch.arange(64) % 3, 100 * states[:, 0], next_states)


def weights(model: nn.Module) -> torch.Tensor:
    """All parameters as one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def train(init_scale: float = 2.0**30) -> Report:
    """ITERATIONS updates from a scale that is too large, so that the first ones overflow."""
    learner, batch, report = Learner(init_scale), make_batch(), Report()
    for _ in range(ITERATIONS):
        before = weights(learner.target)
        policy_loss, value_loss, targets = learner.losses(batch)
        policy_applied, value_applied = learner.step(policy_loss, value_loss)
        both = policy_applied and value_applied
        if both:
            learner.follow()
            report.soft_updates += 1
        report.policy_applied += policy_applied
        report.value_applied += value_applied
        report.both_applied += both
        report.only_one_applied += policy_applied != value_applied
        report.target_moved_without_both += not both and not torch.equal(before, weights(learner.target))
        report.target_dtype = targets.dtype
        report.finite = report.finite and bool(torch.isfinite(policy_loss + value_loss))
    report.scale = learner.scaler.get_scale()
    return report


def bootstrapped_value(value: float, in_float32: bool) -> float:
    """The output of a target network under autocast whose value is `value`, without and with a nested scope."""
    target = nn.Linear(1, 1, bias=False)
    nn.init.constant_(target.weight, value)
    with torch.no_grad(), torch.autocast("cpu", torch.float16), torch.autocast("cpu", enabled=not in_float32):
        return target(torch.ones(1, 1)).item()


def main() -> None:
    """Prints values without and with the nested scope, then the report."""
    torch.set_num_threads(1)
    for value in (2049.0, 70000.0):
        outputs = [bootstrapped_value(value, in_float32) for in_float32 in (False, True)]
        print(f"target network of value {value:g}: {outputs[0]:g} in fp16, {outputs[1]:g} in float32")
    report = train()
    for name, value in dataclasses.asdict(report).items():
        print(f"{name.replace('_', ' '):<28}{value}")


if __name__ == "__main__":
    main()
