"""What a kernel may take and must have, for every GPU architecture that the library is built for.

Two blocks of 512 threads fit a multiprocessor only with 64 registers a thread. A spill or a local copy of the table of
tensors shows as stack or as local loads and stores. Gradients are read and written 16 bytes at a time, four of them in
flight; misaligned ones have loops of their own, with narrower accesses.
"""

from dataclasses import dataclass

from machine_code import Kernel

REGISTERS = 64
SHARED_BYTES = 2048


@dataclass(frozen=True)
class Rule:
    """`least` <= number of operations whose name matches <= `most`."""

    sass: str
    ptx: str
    what: str
    least: int = 0
    most: int | None = None


LOADS_128, STORES_128 = r"LDG\.E\.(\w+\.)*128(\.\w+)*", r"STG\.E\.(\w+\.)*128(\.\w+)*"
PTX_LOADS_128, PTX_STORES_128 = r"ld\.global(\.nc)?\.v4\.[bfu]32", r"st\.global\.v4\.[bfu]32"

NO_LOCAL = Rule(r"(LDL|STL).*", r"\.local|(ld|st)\.local.*", "local memory", most=0)
# 3 dtypes besides float64, in groups of 4 vectors and, for what is left, of 1.
LOADS = Rule(LOADS_128, PTX_LOADS_128, "16-byte loads", least=15)
NO_STORES = Rule(STORES_128, PTX_STORES_128, "16-byte stores", most=0)
STORES = Rule(STORES_128, PTX_STORES_128, "16-byte stores", least=15)
FEW_STORES = Rule(STORES_128, PTX_STORES_128, "16-byte stores", least=4)


def fences(number: int) -> Rule:
    return Rule(r"MEMBAR\..*", r"membar\.gl|fence\..*", "fences", least=number, most=number)


def counters(number: int) -> Rule:
    return Rule(r"ATOMG?\.E\.INC.*", r"atom\.global\.inc\.u32", "block counters", least=number, most=number)


def barriers(number: int) -> Rule:
    return Rule(r"BAR\.SYNC.*", r"bar(rier)?\.sync.*", "barriers", least=number, most=number)


# What the last block does: two fences around one counter; six barriers are in the source.
LAST_BLOCK = (fences(2), counters(1), barriers(6))
NOBODY_WAITS = (fences(0), counters(0), barriers(0))

# By the beginning of the kernel's name.
RULES: dict[str, tuple[Rule, ...]] = {
    "stats_kernel<ReadOnly,": (LOADS, NO_STORES, *LAST_BLOCK),
    "stats_kernel<Unscale,": (LOADS, STORES, *LAST_BLOCK),
    "stats_kernel<UnscaleClamp,": (LOADS, FEW_STORES, *LAST_BLOCK),
    "power_stats_kernel<ReadOnly,": (NO_STORES, *LAST_BLOCK),
    "power_stats_kernel<Unscale,": LAST_BLOCK,
    "scale_grads_kernel<": (LOADS, STORES, *NOBODY_WAITS),
    "unscale_kernel<": (LOADS, STORES, *NOBODY_WAITS),
    "unit_sums_kernel<": (LOADS, *NOBODY_WAITS),
    "unit_powers_kernel<": NOBODY_WAITS,
    "tensor_norms_kernel<": (NO_STORES, fences(0), counters(0), barriers(2)),
    "scan_units_kernel<": (NO_STORES, *NOBODY_WAITS),
    "clear_findings_kernel<": NOBODY_WAITS,
    "write_findings_kernel<": NOBODY_WAITS,
    "update_scale_kernel": NOBODY_WAITS,
    "step_factors_kernel": NOBODY_WAITS,
    "merge_stats_kernel<": NOBODY_WAITS,
}


def rules_for(kernel: Kernel) -> tuple[Rule, ...] | None:
    """None for a kernel that nobody has made rules for."""
    return next((rules for name, rules in RULES.items() if kernel.name.startswith(name)), None)


def broken_rules(kernel: Kernel) -> list[str]:
    """What is wrong with a kernel, in words."""
    wrong = []
    for what, found, most in (
        ("registers", kernel.registers, REGISTERS),
        ("bytes of stack", kernel.stack, 0),
        ("bytes of local memory", kernel.local, 0),
        ("bytes of shared memory", kernel.shared, SHARED_BYTES),
    ):
        if found > most:
            wrong.append(f"{found} {what}, at most {most}")
    if not kernel.operations:
        return [*wrong, "no operations were found"]
    rules = rules_for(kernel)
    if rules is None:
        return [*wrong, "no rules for this kernel in tests/gates/budgets.py"]
    for rule in (NO_LOCAL, *rules):
        found = kernel.count(rule.ptx if kernel.arch == "ptx" else rule.sass)
        if found < rule.least or (rule.most is not None and found > rule.most):
            wanted = f"exactly {rule.least}" if rule.least == rule.most else f"at least {rule.least}"
            wanted = f"at most {rule.most}" if rule.most == 0 else wanted
            wrong.append(f"{found} {rule.what}, {wanted}")
    return wrong
