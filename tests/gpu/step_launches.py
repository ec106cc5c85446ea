"""Step launches: counted by the profiler for each call, and held against docs/gpu.md; the pass that returns at once;
host time per tensor."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from common import Checks, gradients, measured, median, not_checked, options_of, timed
from judge import expected_launches, wrong_launches

options = options_of(argparse.ArgumentParser(description=__doc__))

import torch  # noqa: E402

import ampscaler  # noqa: E402

OPS = torch.ops.ampscaler
FOUND_INF, CLIP_COEFFICIENT = (ampscaler.ops.FACTORS.index(name) for name in ("found_inf", "clip_coefficient"))

# An item of the list in docs/gpu.md.
COUNTS = "launches of each call, counted by the profiler"


def launches(call: Callable[[], object]) -> int:
    """Kernels that one call has started; on the CPU none is."""
    call()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if options.device == "cuda":
        torch.cuda.synchronize()
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        call()
        if options.device == "cuda":
            torch.cuda.synchronize()
    # Of the runtime, not the driver's calls below them.
    return sum(1 for event in profile.events() if event.name.startswith("cudaLaunchKernel"))


def host_microseconds(call: Callable[[], object], rounds: int = 30) -> float:
    """Until the call returns; the queue is empty before each."""
    times = []
    for _ in range(rounds):
        if options.device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    return sorted(times)[rounds // 2]


def operators(grads: list[torch.Tensor]) -> dict[str, Callable[[], object]]:
    """The calls of which docs/gpu.md tells the launches."""
    one, zero, other = (torch.full((1,), value, device=options.device) for value in (1.0, 0.0, 1.0000001))
    stats = [OPS.grad_stats(grads[:1], one)[0] for _ in range(2)]
    tracker = torch.zeros(1, dtype=torch.int32, device=options.device)
    scale = torch.full((1,), 8.0, device=options.device)
    found: dict[str, Callable[[], object]] = {
        "grad_stats": lambda: OPS.grad_stats(grads, one),
        "grad_stats with a clip": lambda: OPS.grad_stats(grads, one, max_norm=1.0),
        "unscale_with_stats_": lambda: OPS.unscale_with_stats_(grads, one),
        "unscale_clamp_": lambda: OPS.unscale_clamp_(grads, one, 3.0),
        "unscale_": lambda: OPS.unscale_(grads, zero, one),
        "scale_grads_ that clips": lambda: OPS.scale_grads_(grads, other, zero),
        "scale_grads_ that returns at once": lambda: OPS.scale_grads_(grads, one, zero),
        "step_factors": lambda: OPS.step_factors(zero, scale=one, clip_coefficient=one),
        "merge_stats of two": lambda: OPS.merge_stats(stats),
        "update_scale_": lambda: OPS.update_scale_(scale, tracker, zero, 2.0, 0.5, 2000),
        "advance_scale_": lambda: OPS.advance_scale_(scale, tracker, zero, [2.0, 0.5, 2000, 1.0, 1e6]),
    }
    found["unscale_with_stats_ and scale_grads_"] = lambda: clip(OPS.unscale_with_stats_, grads, one)
    found["grad_stats and scale_grads_"] = lambda: clip(OPS.grad_stats, grads, one)
    return found


def clip(call: Callable[..., list[torch.Tensor]], grads: list[torch.Tensor], scale: torch.Tensor) -> None:
    """With a second pass, which scales: the limit binds."""
    _, factors = call(grads, scale, max_norm=0.5)
    OPS.scale_grads_(grads, factors[CLIP_COEFFICIENT], factors[FOUND_INF])


def calls_of(count: int) -> dict[str, Callable[[], object]]:
    """What is counted and timed, for a list of small gradients."""
    grads = gradients([64] * count, torch.float32, options.device)
    one, zero = (torch.full((1,), value, device=options.device) for value in (1.0, 0.0))
    parameters = [torch.nn.Parameter(torch.zeros_like(grad)) for grad in grads]
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    scalers = [kind(options.device) for kind in (ampscaler.GradScaler, torch.amp.GradScaler)]
    for scaler in scalers:
        scaler.scale(one)
    aten = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_

    def clip_by_torch() -> object:
        scalers[1]._per_optimizer_states.clear()
        scalers[1].unscale_(optimizer)
        return torch.nn.utils.clip_grad_norm_(parameters, 1e30)

    def clip_by_us() -> object:
        scalers[0]._per_optimizer_states.clear()
        return scalers[0].clip_grad_norm_(optimizer, 1e30)

    return {
        **operators(grads),
        "aten's unscale": lambda: aten(grads, zero, one),
        "clip_grad_norm_": clip_by_us,
        "torch's unscale_ and clip_grad_norm_": clip_by_torch,
    }


def judge(counted: dict[tuple[str, int], int]) -> int:
    """The exit code."""
    if not any(counted.values()):
        not_checked(COUNTS, "the profiler has counted none")
        return 0
    checks = Checks()
    for call, tensors in counted:
        wrong = wrong_launches({(call, tensors): counted[call, tensors]})
        if expected_launches(call, tensors) is not None:
            checks.expect(not wrong, "; ".join(wrong))
    return checks.verdict()


def main() -> int:
    counted = {}
    for count in (30,) if options.quick else (300, 1000, 2040, 5000):
        for name, call in calls_of(count).items():
            counted[name, count] = launches(call)
            host = host_microseconds(call)
            device = median(timed(call, options.device, seconds=0.05))
            measured(
                call=name,
                tensors=count,
                launches=counted[name, count],
                host_us=round(host, 1),
                host_us_per_tensor=round(host / count, 4),
                device_ms=device,
            )
    return judge(counted)


if __name__ == "__main__":
    sys.exit(main())
