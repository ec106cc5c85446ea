"""Step training: the conformance suite; fused optimizers with a folded clip against torch's recipe; skips."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from common import Checks, options_of

options = options_of(argparse.ArgumentParser(description=__doc__))

import torch  # noqa: E402

import ampscaler  # noqa: E402

OPTIMIZERS = (
    (torch.optim.Adam, {"lr": 1e-2}),
    (torch.optim.AdamW, {"lr": 1e-2}),
    (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9}),
)


def run_conformance(checks: Checks) -> None:
    """The suite of the package, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    arguments = ["--section", "5", "--section", "6"] if options.quick else []
    command = [sys.executable, "-m", "ampscaler.conformance", "--device", options.device, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    print("\n".join(done.stdout.splitlines()[-15:]), done.stderr[-1000:], flush=True)
    checks.expect(done.returncode == 0, f"conformance: exit code {done.returncode}")


def model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(33, 65), torch.nn.Tanh(), torch.nn.Linear(65, 5)).to(options.device)


def train(kind: type, settings: dict[str, float], ours: bool, steps: int = 12, bad_step: int = 5) -> list[torch.Tensor]:
    """Parameters after some steps, of which one overflows. Ours folds the clip into the fused step."""
    net = model()
    optimizer = kind(net.parameters(), fused=True, **settings)
    scaler_class = ampscaler.GradScaler if ours else torch.amp.GradScaler
    scaler = scaler_class(options.device, init_scale=1024.0, growth_interval=3)
    for step in range(steps):
        torch.manual_seed(100 + step)
        optimizer.zero_grad()
        loss = net(torch.randn(16, 33, device=options.device)).square().mean()
        scaler.scale(loss * (float("inf") if step == bad_step else 1.0)).backward()
        if ours:
            scaler.clip_grad_norm_(optimizer, 0.05, eps=1e-6)
        else:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()
    return [parameter.detach().clone() for parameter in net.parameters()] + [torch.tensor(scaler.get_scale())]


def check_fused(checks: Checks) -> None:
    for kind, settings in OPTIMIZERS:
        found, expected = train(kind, settings, ours=True), train(kind, settings, ours=False)
        for index, (a, b) in enumerate(zip(found, expected, strict=True)):
            close = torch.allclose(a, b, rtol=1e-4, atol=1e-5)
            checks.expect(close, f"fused {kind.__name__}: parameter {index} differs by {(a - b).abs().max().item()}")


def check_skip(checks: Checks) -> None:
    """An overflow leaves parameters, gradients and counters of a fused optimizer as they were."""
    for kind, settings in OPTIMIZERS:
        net = model()
        optimizer = kind(net.parameters(), fused=True, **settings)
        scaler = ampscaler.GradScaler(options.device, init_scale=8.0)
        for bad in (False, True):
            optimizer.zero_grad()
            loss = net(torch.ones(4, 33, device=options.device)).sum() * (float("inf") if bad else 1.0)
            scaler.scale(loss).backward()
            before = [parameter.detach().clone() for parameter in net.parameters()]
            scaler.clip_grad_norm_(optimizer, 1.0)
            scaler.step(optimizer)
            scaler.update()
            same = [torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True)]
            checks.expect(all(same) if bad else not any(same), f"{kind.__name__}: step applied or skipped, bad {bad}")
        checks.expect(scaler.get_scale() == 4.0, f"{kind.__name__}: scale {scaler.get_scale()}")


def main() -> int:
    checks = Checks()
    check_fused(checks)
    check_skip(checks)
    run_conformance(checks)
    return checks.verdict()


if __name__ == "__main__":
    sys.exit(main())
