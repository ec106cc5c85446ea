"""Step launches: counted by the profiler for each call; the pass that returns at once; host time per tensor."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from common import gradients, measured, median, options_of, timed

options = options_of(argparse.ArgumentParser(description=__doc__))

import torch  # noqa: E402

import ampscaler  # noqa: E402

OPS = torch.ops.ampscaler


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
    return sum(1 for event in profile.events() if "LaunchKernel" in event.name)


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

    stats = [OPS.grad_stats(grads[:1], one)[0] for _ in range(2)]
    return {
        "step_factors": lambda: OPS.step_factors(zero, scale=one, clip_coefficient=one),
        "merge_stats of two": lambda: OPS.merge_stats(stats),
        "grad_stats": lambda: OPS.grad_stats(grads, one),
        "unscale_with_stats_": lambda: OPS.unscale_with_stats_(grads, one),
        "scale_grads_ that returns at once": lambda: OPS.scale_grads_(grads, one, zero),
        "aten's unscale": lambda: aten(grads, zero, one),
        "clip_grad_norm_": clip_by_us,
        "torch's unscale_ and clip_grad_norm_": clip_by_torch,
    }


def main() -> int:
    for count in (30,) if options.quick else (300, 1000, 2040, 5000):
        for name, call in calls_of(count).items():
            counted = launches(call)
            host = host_microseconds(call)
            device = median(timed(call, options.device, seconds=0.05))
            measured(
                call=name,
                tensors=count,
                launches=counted,
                host_us=round(host, 1),
                host_us_per_tensor=round(host / count, 4),
                device_ms=device,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
