"""Step operators: every one on the GPU against the same on the CPU, float64 and aten: all dtypes, sizes, alignments,
kinds of data, types of norm; complex gradients; the scale; norm bits over orders and splits; 5,000 tensors; one tensor
of more than 2^31 elements."""

from __future__ import annotations

import argparse
import itertools
import math
import sys

from common import Checks, not_checked, options_of

options = options_of(argparse.ArgumentParser(description=__doc__))

import torch  # noqa: E402

import ampscaler  # noqa: E402

OPS = torch.ops.ampscaler
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NORM, FOUND_INF = ampscaler.ops.STATS.index("norm"), ampscaler.ops.FACTORS.index("found_inf")
NORM_TYPES = (0.0, 1.0, 2.0, 3.5, math.inf)
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


def true_norm(values: list[torch.Tensor], norm_type: float, scale: float, zero_counts_tensors: bool = True) -> float:
    """In float64. For 2 of numbers divided by the largest, as no square of theirs overflows; otherwise as it is."""
    flat = torch.cat([value.double().flatten() for value in values]).abs()
    if bool(flat.isnan().any()):
        return math.nan
    if bool(flat.isinf().any()):
        return math.inf
    if norm_type == 0.0:
        counts = [int(value.count_nonzero()) for value in values]
        return float(sum(count > 0 for count in counts) if zero_counts_tensors else sum(counts))
    largest = flat.max().item() if flat.numel() else 0.0
    if norm_type == math.inf or largest == 0.0:
        return largest / scale
    unit = largest if norm_type == 2.0 else 1.0
    return unit * (flat / unit).pow(norm_type).sum().pow(1.0 / norm_type).item() / scale


def expect_norm(checks: Checks, found: float, expected: float, what: str) -> None:
    same = torch.isclose(torch.tensor(found), torch.tensor(expected), rtol=2.0**-19, atol=0, equal_nan=True)
    checks.expect(same, f"{what}: norm is {found}, in float64 {expected}")


def check_norms(checks: Checks, gpu: list[torch.Tensor], cpu: list[torch.Tensor], scale: float, what: str) -> None:
    """What only reads: grad_stats and grad_norms of every type of norm."""
    on_gpu, on_cpu = scalar(scale, options.device), scalar(scale, "cpu")
    for norm_type in NORM_TYPES:
        which = f"{norm_type}-norm {what}"
        stats = OPS.grad_stats(gpu, on_gpu, norm_type=norm_type)
        expect_stats(checks, stats, OPS.grad_stats(cpu, on_cpu, norm_type=norm_type), f"grad_stats {which}")
        expect_norm(checks, stats[0][NORM].item(), true_norm(cpu, norm_type, scale), f"grad_stats {which}")
        norms = OPS.grad_norms(gpu, on_gpu, norm_type).cpu()
        close = torch.allclose(norms, OPS.grad_norms(cpu, on_cpu, norm_type), rtol=2.0**-19, atol=0, equal_nan=True)
        checks.expect(close, f"grad_norms {which}")
        for index, value in enumerate(cpu):
            # As float32, like the result: what is beyond it, or below, reads so.
            expected = torch.tensor(true_norm([value], norm_type, scale, False), dtype=torch.float32).item()
            if expected == 0.0 or abs(expected) >= 2.0**-126:
                expect_norm(checks, norms[index].item(), expected, f"grad_norms {which}, tensor {index}")


def check_statistics(checks: Checks, kind: str, dtype: torch.dtype, offset: int) -> None:
    gpu, cpu = lists(kind, dtype, offset)
    what = f"{kind} {dtype} offset {offset}"
    check_norms(checks, gpu, cpu, 3.0, what)
    # Each goes on with what the one before has stored.
    for scale, norm_type in ((1.0, 2.0), (3.0, 0.0), (3.0, 1.0), (2.0, 3.5), (0.25, math.inf), (2.0**-10, 2.0)):
        which = f"unscale_with_stats_ {what} scale {scale} {norm_type}-norm"
        on_gpu, on_cpu = scalar(scale, options.device), scalar(scale, "cpu")
        expected = true_norm(cpu, norm_type, scale)
        found = OPS.unscale_with_stats_(gpu, on_gpu, norm_type=norm_type)
        expect_stats(checks, found, OPS.unscale_with_stats_(cpu, on_cpu, norm_type=norm_type), which)
        expect_norm(checks, found[0][NORM].item(), expected, which)
        checks.expect(same_values(gpu, cpu), f"{which}: values")
    checks.expect(torch.equal(OPS.find_nonfinite(gpu).cpu(), OPS.find_nonfinite(cpu)), f"find_nonfinite {what}")
    found = OPS.unscale_clamp_(gpu, on_gpu, 0.5), OPS.unscale_clamp_(cpu, on_cpu, 0.5)
    expect_stats(checks, *found, f"unscale_clamp_ {what}")
    checks.expect(same_values(gpu, cpu), f"unscale_clamp_ {what}: values")
    for flag in (0.0, 1.0):
        OPS.scale_grads_(gpu, scalar(0.3, options.device), scalar(flag, options.device))
        OPS.scale_grads_(cpu, scalar(0.3, "cpu"), scalar(flag, "cpu"))
        checks.expect(same_values(gpu, cpu), f"scale_grads_ {what} found_inf {flag}")


def check_arguments(checks: Checks) -> None:
    """Divisor, the user's scale, limits and eps, as numbers and tensors of any dtype; all factors."""
    for dtype, norm_type in itertools.product(DTYPES, NORM_TYPES):
        gpu, cpu = lists("ordinary", torch.float32, 1)
        results = []
        for device, grads in ((options.device, gpu), ("cpu", cpu)):
            given = {"divisor": torch.full((1,), 3.0, dtype=dtype, device=device), "norm_type": norm_type, "eps": 1e-3}
            given["user_scale"] = torch.full((1,), 0.5, dtype=dtype, device=device)
            limit = torch.full((1,), 0.25, dtype=dtype, device=device)
            found = [OPS.grad_stats(grads, scalar(5.0, device), **given, max_norm=0.75)]
            found.append(OPS.unscale_with_stats_(grads, scalar(5.0, device), **given, max_norm_tensor=limit))
            results.append([value.cpu().double() for pair in found for value in pair])
        for a, b in zip(*results, strict=True):
            close = torch.allclose(a, b, rtol=2.0**-19, atol=0)
            checks.expect(close, f"{norm_type}-norm, {dtype}: {a}, on the CPU {b}")
        checks.expect(same_values(gpu, cpu), f"divisor {dtype}: values")


def check_complex(checks: Checks) -> None:
    """A complex element is one for find_nonfinite, and two numbers for all else."""
    bad = {3: complex(0, math.inf), 5001: complex(math.nan, 0), 5002: complex(math.inf, math.nan)}
    for dtype in (torch.complex64, torch.complex128):
        cpu = [torch.randn(size, dtype=dtype) for size in (1, 5003, 40_000)] + [data("nan", 777, torch.float16)]
        gpu = [value.to(options.device, copy=True) for value in cpu]
        scales = scalar(3.0, options.device), scalar(3.0, "cpu")
        found = OPS.unscale_with_stats_(gpu, scales[0]), OPS.unscale_with_stats_(cpu, scales[1])
        expect_stats(checks, *found, f"unscale_with_stats_ {dtype}")
        for a, b in zip(gpu[:3], cpu[:3], strict=True):
            checks.expect(torch.equal(a.cpu(), b), f"unscale_with_stats_ {dtype}: values")
        for values in (cpu, gpu):
            for index, value in bad.items():
                values[1][index] = value
        rows = OPS.find_nonfinite(gpu).cpu()
        expected = [[-1, 0, 0], [3, 1, 3], [-1, 0, 0], [777 // 2, 2, 2]]
        checks.expect(rows.tolist() == expected, f"find_nonfinite {dtype}: {rows.tolist()}")
        checks.expect(torch.equal(rows, OPS.find_nonfinite(cpu)), f"find_nonfinite {dtype}, against the CPU")


def check_scale(checks: Checks) -> None:
    """update_scale_ and advance_scale_ to the bit: against the CPU, and the first against aten there."""
    scales = (1.0, 65536.0, 3.3, 2.0**127, 2.0**-126, math.inf, math.nan, 0.0)
    flags = (0.0, -0.0, 1.0, 0.5, math.nan, math.inf)
    rules = ((2.0, 0.5, 3), (1.7, 0.3, 1), (1.0, 1.0, 2**40), (2.0, 0.5, 0))
    for scale, tracker, flag, rule in itertools.product(scales, (0, 1, 2, 3, 2**31 - 1), flags, rules):
        results = []
        for device in (options.device, "cpu", "cpu"):
            state = scalar(scale, device), torch.full((1,), tracker, dtype=torch.int32, device=device)
            update = torch.ops.aten._amp_update_scale_ if len(results) == 2 else OPS.update_scale_
            update(*state, scalar(flag, device), *rule)
            results.append([value.item() for value in state])
            if len(results) < 3:
                OPS.advance_scale_(*state, scalar(flag, device), [*map(float, rule), 2.0**-3, 2.0**16])
                results[-1] += [value.item() for value in state]
        same = repr(results[0]) == repr(results[1]) and repr(results[1][:2]) == repr(results[2])
        checks.expect(same, f"scale {scale}, tracker {tracker}, found_inf {flag}, rule {rule}: {results}")


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
    for check in (check_arguments, check_complex, check_scale, check_step_scalars, check_norm_bits, check_large):
        check(checks)
    return checks.verdict()


if __name__ == "__main__":
    sys.exit(main())
