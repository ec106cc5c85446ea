"""Step graphs: capture and 100 replays with changing gradients and scale; two streams at once; two scalers at once."""

from __future__ import annotations

import argparse
import sys

from common import Checks, options_of
from runner import SKIPPED_CODE

options = options_of(argparse.ArgumentParser(description=__doc__))

import torch  # noqa: E402

import ampscaler  # noqa: E402

OPS = torch.ops.ampscaler
FOUND_INF = ampscaler.ops.FACTORS.index("found_inf")
CLIP_COEFFICIENT = ampscaler.ops.FACTORS.index("clip_coefficient")


class Chain:
    """Unscale with statistics, clip, update of the scale: all on the device, on memory that stays where it is."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator(options.device).manual_seed(seed)
        sizes = [(17 * i) % 5000 + 1 for i in range(200)]
        dtypes = (torch.float32, torch.bfloat16)
        self.source = [
            torch.randn(size, device=options.device, generator=generator).to(dtypes[i % 2])
            for i, size in enumerate(sizes)
        ]
        self.grads = [value.clone() for value in self.source]
        self.scale = torch.full((1,), 8.0, device=options.device)
        self.tracker = torch.zeros(1, dtype=torch.int32, device=options.device)
        self.stats = torch.zeros(len(ampscaler.ops.STATS), dtype=torch.float64, device=options.device)

    def load(self, factor: float, bad: bool) -> None:
        """The gradients of the next step."""
        for grad, value in zip(self.grads, self.source, strict=True):
            grad.copy_(value * factor)
        if bad:
            self.grads[7].view(-1)[0] = float("inf")

    def run(self) -> None:
        stats, factors = OPS.unscale_with_stats_(self.grads, self.scale, max_norm=3.0)
        OPS.scale_grads_(self.grads, factors[CLIP_COEFFICIENT], factors[FOUND_INF])
        OPS.update_scale_(self.scale, self.tracker, factors[FOUND_INF].reshape(1), 2.0, 0.5, 4)
        self.stats.copy_(stats)

    def state(self) -> list[torch.Tensor]:
        return [value.clone() for value in (*self.grads, self.scale, self.tracker, self.stats)]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x.nan_to_num(7.0), y.nan_to_num(7.0)) for x, y in zip(a, b, strict=True))


def check_replays(checks: Checks) -> None:
    eager, captured = Chain(1), Chain(1)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        warm_up = Chain(1)
        warm_up.run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.run()
    for step in range(100):
        for chain in (eager, captured):
            chain.load(1.0 + step / 10, bad=step % 13 == 5)
        eager.run()
        graph.replay()
        if not expect_equal(checks, eager, captured, f"replay {step}"):
            return


def expect_equal(checks: Checks, a: Chain, b: Chain, what: str) -> bool:
    equal = same(a.state(), b.state())
    checks.expect(equal, what)
    return equal


def check_streams(checks: Checks) -> None:
    """Two chains on two streams, interleaved, are each as they are alone."""
    alone, together = [Chain(5), Chain(6)], [Chain(5), Chain(6)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    for step in range(50):
        for chain in alone:
            chain.load(1.0 + step, bad=step % 7 == 3)
            chain.run()
        torch.cuda.synchronize()
        for chain, stream in zip(together, streams, strict=True):
            with torch.cuda.stream(stream):
                chain.load(1.0 + step, bad=step % 7 == 3)
                chain.run()
        torch.cuda.synchronize()
        for a, b in zip(alone, together, strict=True):
            expect_equal(checks, a, b, f"two streams, step {step}")


def check_scalers(checks: Checks) -> None:
    """Two scalers, whose steps alternate, each with a scale of its own."""
    nets = [torch.nn.Linear(10, 3).to(options.device) for _ in range(2)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, fused=True) for net in nets]
    scalers = [ampscaler.GradScaler(options.device, init_scale=scale, growth_interval=2) for scale in (4.0, 1024.0)]
    for step in range(4):
        for index, (net, optimizer, scaler) in enumerate(zip(nets, optimizers, scalers, strict=True)):
            optimizer.zero_grad()
            bad = index == 1 and step == 1
            scaler.scale(net(torch.ones(2, 10, device=options.device)).sum() * (float("inf") if bad else 1)).backward()
            scaler.clip_grad_norm_(optimizer, 1.0)
            scaler.step(optimizer)
        for scaler in scalers:
            scaler.update()
    checks.expect([scaler.get_scale() for scaler in scalers] == [16.0, 1024.0], "two scalers at once")


def main() -> int:
    if options.device != "cuda":
        print("graphs and streams need CUDA")
        return SKIPPED_CODE
    checks = Checks()
    check_replays(checks)
    check_streams(checks)
    check_scalers(checks)
    return checks.verdict()


if __name__ == "__main__":
    sys.exit(main())
