"""Step operators: every one on the GPU against the same on the CPU, float64 and aten: all dtypes, sizes, alignments,
kinds of data; norm bits over orders and splits; 5,000 tensors; one tensor of more than 2^31 elements."""

from __future__ import annotations

import argparse
import math
import sys

from common import Checks, not_checked, options_of

options = options_of(argparse.ArgumentParser(description=__doc__))

import torch  # noqa: E402

import ampscaler  # noqa: E402

OPS = torch.ops.ampscaler
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NORM, FOUND_INF = ampscaler.ops.STATS.index("norm"), ampscaler.ops.FACTORS.index("found_inf")
EXACT = [name for name in ampscaler.ops.STATS if name not in ("norm", "clip_coefficient")]


def data(kind: str, size: int, dtype: torch.dtype) -> torch.Tensor:
    """On the CPU. `huge` and `tiny` have squares beyond float32."""
    values = torch.randn(size, dtype=torch.float64)
    exponent = {torch.float16: (4, -6), torch.float64: (200, -200)}.get(dtype, (30, -35))
    if kind == "huge":
        values = values.clamp(-3, 3) * 10.0 ** exponent[0]
    elif kind == "tiny":
        values = values * 10.0 ** exponent[1]
    elif kind == "zeros":
        values = values * 0
    result = values.to(dtype)
    if kind in ("inf", "nan") and size:
        result[size // 2] = math.inf if kind == "inf" else math.nan
        result[-1] = -math.inf if kind == "inf" else math.nan
    return result


KINDS = ("ordinary", "inf", "nan", "huge", "tiny", "zeros")


def lists(kind: str, dtype: torch.dtype, offset: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Equal lists on GPU and CPU; those on the GPU begin `offset` elements after an aligned address."""
    unit = 16384 // dtype.itemsize
    sizes = (0, 1, 7, 64, unit - 1, unit, unit + 1, 3 * unit + 77, 0 if options.quick else 300_001)
    cpu = [data(kind, size, dtype) for size in sizes]
    gpu = [torch.zeros(value.numel() + offset, dtype=dtype, device=options.device)[offset:] for value in cpu]
    for there, here in zip(gpu, cpu, strict=True):
        there.copy_(here)
    return gpu, cpu


def scalar(value: float, device: str) -> torch.Tensor:
    return torch.full((1,), value, device=device)


def same_values(gpu: list[torch.Tensor], cpu: list[torch.Tensor]) -> bool:
    """To the bit, the sign of zeros too, but for sign and payload of NaN."""
    for a, b in zip((value.cpu() for value in gpu), cpu, strict=True):
        same = ((a == b) & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())
        if a.dtype != b.dtype or not bool(same.all()):
            return False
    return True


def expect_stats(checks: Checks, gpu: tuple[torch.Tensor, ...], cpu: tuple[torch.Tensor, ...], what: str) -> None:
    """Counts, largest magnitude and flag are equal; norms within what both may be off."""
    found, expected = gpu[0].cpu(), cpu[0]
    for name in EXACT:
        slot = ampscaler.ops.STATS.index(name)
        same = torch.isclose(found[slot], expected[slot], rtol=1e-15, atol=0, equal_nan=True)
        checks.expect(same, f"{what}: {name} is {found[slot].item()}, on the CPU {expected[slot].item()}")
    same = torch.isclose(found[NORM], expected[NORM], rtol=2.0**-19, atol=0, equal_nan=True)
    checks.expect(same, f"{what}: norm is {found[NORM].item()}, on the CPU {expected[NORM].item()}")
    checks.expect(gpu[1][FOUND_INF].item() == cpu[1][FOUND_INF].item(), f"{what}: found_inf")


def check_statistics(checks: Checks, kind: str, dtype: torch.dtype, offset: int) -> None:
    gpu, cpu = lists(kind, dtype, offset)
    for scale in (1.0, 3.0, 2.0**-10):
        what = f"{kind} {dtype} offset {offset} scale {scale}"
        on_gpu, on_cpu = scalar(scale, options.device), scalar(scale, "cpu")
        expect_stats(checks, OPS.grad_stats(gpu, on_gpu), OPS.grad_stats(cpu, on_cpu), f"grad_stats {what}")
        per_tensor = zip(OPS.grad_norms(gpu, on_gpu).cpu(), OPS.grad_norms(cpu, on_cpu), strict=True)
        close = all(torch.isclose(a, b, rtol=2.0**-19, atol=0, equal_nan=True) for a, b in per_tensor)
        checks.expect(close, f"grad_norms {what}")
        found = OPS.unscale_with_stats_(gpu, on_gpu), OPS.unscale_with_stats_(cpu, on_cpu)
        expect_stats(checks, *found, f"unscale_with_stats_ {what}")
        checks.expect(same_values(gpu, cpu), f"unscale_with_stats_ {what}: values")
    checks.expect(torch.equal(OPS.find_nonfinite(gpu).cpu(), OPS.find_nonfinite(cpu)), f"find_nonfinite {what}")
    found = OPS.unscale_clamp_(gpu, on_gpu, 0.5), OPS.unscale_clamp_(cpu, on_cpu, 0.5)
    expect_stats(checks, *found, f"unscale_clamp_ {what}")
    checks.expect(same_values(gpu, cpu), f"unscale_clamp_ {what}: values")
    for flag in (0.0, 1.0):
        OPS.scale_grads_(gpu, scalar(0.3, options.device), scalar(flag, options.device))
        OPS.scale_grads_(cpu, scalar(0.3, "cpu"), scalar(flag, "cpu"))
        checks.expect(same_values(gpu, cpu), f"scale_grads_ {what} found_inf {flag}")


def check_unscale(checks: Checks, kind: str, dtype: torch.dtype, offset: int) -> None:
    """Against aten on the GPU, which refuses bfloat16 there, and on the CPU."""
    aten = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_
    for inverse in (1.0, 0.5, 0.3, 4096.0):
        what = f"unscale_ {kind} {dtype} offset {offset} inverse {inverse}"
        gpu, cpu = lists(kind, dtype, offset)
        other = [value.clone() for value in gpu]
        flags = [scalar(0.0, device) for device in (options.device, "cpu", options.device)]
        beyond_float = any(value.double().isfinite().sum() > value.float().isfinite().sum() for value in cpu)
        OPS.unscale_(gpu, flags[0], scalar(inverse, options.device))
        aten(cpu, flags[1], scalar(inverse, "cpu"))
        checks.expect(same_values(gpu, cpu), f"{what}: values, against the CPU")
        # CUDA kernels, aten's and ours, narrow doubles before they test them.
        expected = 1.0 if beyond_float and options.device == "cuda" else flags[1].item()
        checks.expect(flags[0].item() == expected, f"{what}: found_inf is {flags[0].item()}, not {expected}")
        if dtype != torch.bfloat16 or options.device == "cpu":
            aten(other, flags[2], scalar(inverse, options.device))
            checks.expect(same_values(gpu, [value.cpu() for value in other]), f"{what}: values, against aten")
            checks.expect(flags[0].item() == flags[2].item(), f"{what}: found_inf, against aten")


def check_step_scalars(checks: Checks) -> None:
    """Few numbers, by the same functions on both: the same bits, for the 2-norm and the largest magnitude."""
    numbers = (None, 1.0, 0.3, 65536.0, 0.0, -2.0, 1e-310, 1e300, math.inf, math.nan)
    names = ("scale", "divisor", "user_scale", "clip_coefficient")
    for i, number in enumerate(numbers):
        for dtype in DTYPES:
            given = {name: numbers[(i + 3 * k) % len(numbers)] for k, name in enumerate(names)} | {names[i % 4]: number}
            cpu = {name: torch.tensor(value, dtype=dtype) for name, value in given.items() if value is not None}
            gpu = {name: value.to(options.device) for name, value in cpu.items()}
            found = OPS.step_factors(scalar(0.0, options.device), **gpu), OPS.step_factors(scalar(0.0, "cpu"), **cpu)
            checks.expect(same_values([found[0]], [found[1]]), f"step_factors {given} {dtype}: {found}")
    for parts in (1, 2, 120, 300):
        rows = torch.rand(parts, len(ampscaler.ops.STATS), dtype=torch.float64)
        for norm_type in (2.0, math.inf, 0.0):
            limit = {"norm_type": norm_type, "max_norm": 0.3, "eps": 1e-6}
            found = OPS.merge_stats(rows.to(options.device).unbind(), **limit), OPS.merge_stats(rows.unbind(), **limit)
            checks.expect(same_values(list(found[0]), list(found[1])), f"merge_stats {parts} {norm_type}: {found}")


def check_norm_bits(checks: Checks) -> None:
    """Order, and splitting into accumulating calls, change no bit; 5,000 tensors are several launches."""
    sizes = [1 + 37 * (i % 50) for i in range(300 if options.quick else 5000)]
    values = [data("ordinary", size, DTYPES[i % 4]).to(options.device) for i, size in enumerate(sizes)]
    scale = scalar(7.0, options.device)
    whole = OPS.grad_stats(values, scale)[0].cpu()
    exact = math.sqrt(math.fsum(value.double().square().sum().item() for value in values)) / 7.0
    close = abs(whole[NORM].item() / exact - 1) <= 2.0**-20
    checks.expect(close, f"norm of {len(sizes)} tensors: {whole[NORM]}, {exact}")
    for step in (3, 7, 11):
        other_order = values[step:] + values[:step][::-1]
        stats = OPS.grad_stats(other_order, scale)[0].cpu()
        checks.expect(torch.equal(stats, whole), f"norm bits in another order, {step}")
        accumulate = torch.zeros(141, dtype=torch.int64, device=options.device)
        for begin in range(0, len(values), len(values) // step):
            part = OPS.grad_stats(values[begin : begin + len(values) // step], scale, accumulate=accumulate)[0]
        checks.expect(torch.equal(part.cpu(), whole), f"norm bits in {step} parts")
    for _ in range(20):
        checks.expect(torch.equal(OPS.grad_stats(values, scale)[0].cpu(), whole), "norm bits run to run")


def check_large(checks: Checks) -> None:
    """More elements than 31 bits can count."""
    size = 10_000_005 if options.quick else 2**31 + 5
    if options.device == "cuda" and torch.cuda.mem_get_info()[0] < 3 * size:
        not_checked("more than 2^31 elements in one tensor", f"not enough memory for {size} elements")
        return
    value = torch.zeros(size, dtype=torch.bfloat16, device=options.device)
    value[0], value[-1], value[size // 2] = 3.0, 4.0, 12.0
    scale = scalar(2.0, options.device)
    stats = OPS.grad_stats([value], scale)[0].tolist()
    checks.expect(stats[NORM] == 6.5, f"norm of {size} elements: {stats[NORM]}")
    checks.expect(stats[ampscaler.ops.STATS.index("zeros")] == size - 3, f"zeros of {size} elements")
    OPS.unscale_with_stats_([value], scale)
    checks.expect((value[0].item(), value[-1].item()) == (1.5, 2.0), f"unscaling {size} elements")
    value[-2] = math.nan
    checks.expect(OPS.find_nonfinite([value])[0].tolist() == [size - 2, 2, 1], f"index of a NaN in {size} elements")


def main() -> int:
    torch.manual_seed(7)
    checks = Checks()
    if not options.quick and options.device == "cuda":
        checks.expect(ampscaler._C.has_unscale_kernel("cuda"), "the build has CUDA kernels")
    for dtype in DTYPES:
        for kind in KINDS:
            offsets = [0] if options.quick else [0, *(2**k for k in range(3) if 2**k * dtype.itemsize < 16)]
            for offset in offsets:
                check_statistics(checks, kind, dtype, offset)
                check_unscale(checks, kind, dtype, offset)
    check_step_scalars(checks)
    check_norm_bits(checks)
    check_large(checks)
    return checks.verdict()


if __name__ == "__main__":
    sys.exit(main())
