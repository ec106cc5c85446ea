"""Defects to plant, and the programs that must notice them: read by check_mutants.py.

A mutation replaces one line of a header, which must occur exactly once in it, or sets a macro. `builds` are those of
the program that must fail; others may.
"""

from dataclasses import dataclass

PLAIN, ASAN, RACE = "plain", "asan", "race"


@dataclass(frozen=True)
class Mutation:
    """One defect: `line` of `file`, without its indentation, becomes `replacement`."""

    name: str
    program: str
    builds: tuple[str, ...]
    file: str = ""
    line: str = ""
    replacement: str = ""
    define: str = ""


def _bug(number: int, name: str, *builds: str) -> Mutation:
    return Mutation(f"bug {number}: {name}", "simt_mutant_test", builds, define=f"BUG={number}")


BUGS = [
    _bug(1, "barrier missing between writing and reading the warp partials", PLAIN, RACE),
    _bug(2, "barrier missing before the partials are used again", RACE),
    _bug(3, "barrier reached by one warp only", PLAIN),
    _bug(4, "full-mask shuffle by 4 lanes", PLAIN),
    _bug(5, "fence missing before the counter", RACE),
    _bug(6, "barrier missing after is_last is written", PLAIN, ASAN),
    _bug(7, "no alignment check before 16-byte loads", ASAN),
    _bug(8, "tail loop one element too far", PLAIN, ASAN),
    _bug(9, "early exit on a flag that other blocks write", PLAIN, RACE),
    _bug(10, "final reduction reads one partial too many", PLAIN, ASAN),
    _bug(11, "counter not reset after the launch", PLAIN),
    _bug(12, "fence missing after the counter", RACE),
    _bug(13, "warp tree without __syncwarp", PLAIN, RACE),
    _bug(14, "flag = flag + 1 instead of an atomic", PLAIN, RACE),
    _bug(15, "__any_sync in a loop with unequal trip counts", PLAIN),
]


def _kernel(program: str, file: str, name: str, line: str, replacement: str, *builds: str) -> Mutation:
    return Mutation(f"{file}: {name}", program, builds, f"csrc/kernels/cuda/{file}", line, replacement)


def _sums(name: str, line: str, replacement: str, *builds: str) -> Mutation:
    return _kernel("grad_stats_kernel_test", "unit_sums.cuh", name, line, replacement, *builds)


def _block(name: str, line: str, replacement: str, *builds: str) -> Mutation:
    return _kernel("grad_stats_kernel_test", "block_sums.cuh", name, line, replacement, *builds)


def _store(file: str, name: str, line: str, replacement: str, *builds: str) -> Mutation:
    return _kernel("store_kernels_test", file, name, line, replacement, *builds)


RANGE = "if (partial >= core::kLowestFloatSum && partial <= FLT_MAX) {"
INFS = "unit.infs = warp_sum(lane.rare & 0x3FFU);"
NANS = "unit.nans = warp_sum(lane.rare >> 10U & 0x3FFU);"
OVERFLOWS = "unit.overflows = warp_sum(lane.rare >> 20U);"
GROUPS = "for (; vectors > (kGroup - 1) * kWarpSize; vectors -= kGroup * kWarpSize) {"
UNIT_SUMS = [
    _sums("no lower bound", RANGE, "if (partial <= FLT_MAX) {", PLAIN),
    _sums("no upper bound", RANGE, "if (partial >= core::kLowestFloatSum) {", PLAIN),
    _sums(
        "lost squares pass for zeros",
        "} else if (!(partial == 0.0F && max == 0.0F)) {",
        "} else if (partial != 0.0F) {",
        PLAIN,
    ),
    _sums("an element too far", "if (last < elements) {", "if (last <= elements) {", PLAIN, ASAN),
    _sums("a group too far", GROUPS, GROUPS.replace("kGroup - 1", "kGroup - 2"), PLAIN, ASAN),
    _sums(
        "large doubles not scaled",
        "if (high >= high_bits(core::kHighestSquared)) {",
        "if (high >= high_bits(0x1p1023)) {",
        PLAIN,
    ),
    _sums(
        "small doubles not scaled",
        "} else if (high >= high_bits(core::kLowestSquared)) {",
        "} else if (high > 0) {",
        PLAIN,
    ),
    _sums("inf counts as NaN", "return x != x ? kOneNan : kOneInf;", "return kOneNan;", PLAIN),
    _sums(
        "counts of inf and NaN not merged",
        INFS,
        "unit.infs = lane.rare & 0x3FFU;",
        PLAIN,
    ),
    _sums("flag from the group's sum", "if (magnitude <= FLT_MAX) {", "if (magnitude <= 0x1p63F) {", PLAIN),
    _sums("high sums left out", "unit.sum_high = warp_sum(lane.high);", "", PLAIN),
    _sums(
        "max of lane 0 only",
        "unit.max_abs = static_cast<double>(warp_max(lane.max));",
        "unit.max_abs = static_cast<double>(lane.max);",
        PLAIN,
    ),
]
BLOCK_SUMS = [
    _block(
        "fence before the barrier", "__syncthreads();  // the whole block has added its sums", "__threadfence();", RACE
    ),
    _block("no fence before the counter", "__threadfence();  // before it is counted", "", RACE),
    _block("no fence after the counter", "__threadfence();  // what others added is seen from here on", "", RACE),
    _block("is_last read too early", "__syncthreads();  // is_last is written", "", PLAIN, RACE),
    _block("sums published too early", "__syncthreads();  // all warps have added their units", "", PLAIN, RACE),
    _block("words concluded from too early", "__syncthreads();  // all words are there", "", PLAIN, RACE),
    _block("limbs handed on before they are normalised", "__syncthreads();  // the limbs are normalised", "", RACE),
    _block("workspace not cleared", "from[k] = 0;", "", PLAIN),
    _block(
        "launches that collect are counted",
        "if (arguments.mode == PassMode::kCollect || !is_last_block(arguments.workspace)) {",
        "if (!is_last_block(arguments.workspace)) {",
        PLAIN,
    ),
    _block(
        "nobody finishes",
        "if (arguments.mode == PassMode::kCollect || !is_last_block(arguments.workspace)) {",
        "if (arguments.mode == PassMode::kFinish || !is_last_block(arguments.workspace)) {",
        PLAIN,
    ),
    _block("addition without atomics", "atomicAdd(word, value);", "*word += value;", RACE),
    _block("maximum added", "if (k != kMaxWord) {", "if (k <= kMaxWord) {", PLAIN),
    _kernel(
        "grad_stats_kernel_test",
        "grad_stats_kernels.cuh",
        "sums used before they are cleared",
        "__syncthreads();  // sums are cleared, the factor is known",
        "",
        PLAIN,
        RACE,
    ),
]
TABLE = [
    Mutation(f"unit_table.h: {name}", "core_test", (PLAIN,), "csrc/core/unit_table.h", line, replacement)
    for name, line, replacement in [
        (
            "search with <",
            "if (table.entries[middle].unit_end <= unit) {",
            "if (table.entries[middle].unit_end < unit) {",
        ),
        (
            "first unit of the wrong entry",
            "return entry == 0 ? 0 : table.entries[entry - 1].unit_end;",
            "return entry == 0 ? 0 : table.entries[entry].unit_end;",
        ),
        (
            "tail mask",
            "unit + 1 == end ? static_cast<std::int64_t>(tail & 0xFF'FFFFU) : unit_elements(dtype),",
            "unit + 1 == end ? static_cast<std::int64_t>(tail & 0xFFFU) : unit_elements(dtype),",
        ),
        ("units of later tables not counted from 0", "table.entries[i].unit_end -= place.first_unit;", ""),
    ]
]
STORES = [
    _store(
        "unit_sums.cuh",
        "sums of products",
        "add_group(lane, group, reinterpret_cast<const T*>(memory));",
        "if constexpr (Action::kStores) { apply<T>(action, group, lane); } "
        "add_group(lane, group, reinterpret_cast<const T*>(memory));",
        PLAIN,
    ),
    _store(
        "unit_sums.cuh",
        "factor test inverted",
        "__device__ bool stores() const { return factor != 1.0F; }",
        "__device__ bool stores() const { return factor == 1.0F; }",
        PLAIN,
    ),
    _store(
        "unit_sums.cuh",
        "overflows only counted above 1",
        "__device__ inline bool can_overflow(float factor) { return !(factor >= -1.0F && factor <= 1.0F); }",
        "__device__ inline bool can_overflow(float factor) { return factor > 1.0F; }",
        PLAIN,
    ),
    _store(
        "scale_grads_kernels.cuh",
        "factor test inverted",
        "if (value == 1.0F || *found_inf != 0.0F) {",
        "if (value != 1.0F || *found_inf != 0.0F) {",
        PLAIN,
    ),
    _store(
        "scale_grads_kernels.cuh",
        "flag ignored",
        "if (value == 1.0F || *found_inf != 0.0F) {",
        "if (value == 1.0F) {",
        PLAIN,
    ),
    _store(
        "multiply_units.cuh",
        "head not peeled",
        "const int head = to_boundary < elements ? to_boundary : elements;",
        "const int head = 0 * to_boundary;",
        ASAN,
    ),
    _store(
        "multiply_units.cuh",
        "head beyond a short tensor",
        "const int head = to_boundary < elements ? to_boundary : elements;",
        "const int head = to_boundary;",
        ASAN,
    ),
    _store("elements.cuh", "no look at the address", "if (width == 16) {", "if (width > 0) {", ASAN),
    _kernel(
        "unscale_kernel_test",
        "unscale_kernels.cuh",
        "flags not merged",
        "[&](auto value) { finite = finite && is_finite_on_cuda(value); });",
        "[&](auto value) { finite = is_finite_on_cuda(value); });",
        PLAIN,
    ),
    _kernel(
        "unscale_kernel_test",
        "unscale_kernels.cuh",
        "float64 not narrowed",
        "return core::is_finite(static_cast<float>(value));",
        "return core::is_finite(value);",
        PLAIN,
    ),
    _kernel(
        "unscale_kernel_test",
        "unscale_kernels.cuh",
        "flag without an atomic",
        "atomicExch(found_inf, 1.0F);",
        "*found_inf = 1.0F;",
        RACE,
    ),
    _kernel(
        "unscale_kernel_test",
        "unscale_kernels.cuh",
        "flag of lane 0 only",
        "if (__any_sync(kAllLanes, finite ? 0 : 1) && lane_id() == 0) {",
        "if (!finite && lane_id() == 0) {",
        PLAIN,
    ),
    _kernel(
        "norm_kernels_test",
        "grad_norms_kernels.cuh",
        "norms before all units are added",
        "__syncthreads();  // all units are added",
        "",
        PLAIN,
        RACE,
    ),
    _kernel(
        "norm_kernels_test",
        "find_nonfinite_kernels.cuh",
        "last instead of first",
        "atomicMin(row + kFirst, code);",
        "atomicExch(row + kFirst, code);",
        PLAIN,
    ),
    _store(
        "unit_sums.cuh",
        "2^-14 counts as below itself",
        "lane.below += high_bits(magnitude) < high_bits(core::kSmallestNormalFloat16) ? 1U : 0U;",
        "lane.below += high_bits(magnitude) <= high_bits(core::kSmallestNormalFloat16) ? 1U : 0U;",
        PLAIN,
    ),
    _sums(
        "doubles scaled too late",
        "if (high >= high_bits(core::kHighestSquared)) {",
        "if (high >= high_bits(0x1p511)) {",
        PLAIN,
    ),
    _store("unit_sums.cuh", "counter of infs too narrow", INFS, INFS.replace("0x3FFU", "0xFFU"), PLAIN),
    _store("unit_sums.cuh", "counter of NaNs too narrow", NANS, NANS.replace("0x3FFU", "0xFFU"), PLAIN),
    _store(
        "unit_sums.cuh", "counter of overflows too narrow", OVERFLOWS, OVERFLOWS.replace("20U", "20U & 0xFFU"), PLAIN
    ),
    _store(
        "scale_grads_kernels.cuh",
        "only factors below 1",
        "if (value == 1.0F || *found_inf != 0.0F) {",
        "if (value >= 1.0F || *found_inf != 0.0F) {",
        PLAIN,
    ),
    _kernel(
        "norm_kernels_test",
        "find_nonfinite_op.cuh",
        "complex entries of the first table in all",
        "marked.entries[i].tail_and_dtype |= is_complex[first_entry + i] ? kComplexEntry : 0;",
        "marked.entries[i].tail_and_dtype |= is_complex[i] ? kComplexEntry : 0;",
        PLAIN,
    ),
    _kernel(
        "norm_kernels_test",
        "find_nonfinite_kernels.cuh",
        "kind of the first half that is not finite",
        "const unsigned kind = a > b ? a : b;",
        "const unsigned kind = a != 0 ? a : b;",
        PLAIN,
    ),
    _kernel(
        "norm_kernels_test",
        "grad_norms_kernels.cuh",
        "as many units as threads",
        "for (std::uint32_t id = first + threadIdx.x; id < end; id += kThreads) {",
        "for (std::uint32_t id = first + threadIdx.x; id < end; id += 1U << 30U) {",
        PLAIN,
    ),
    _kernel(
        "grad_stats_kernel_test",
        "power_stats_kernels.cuh",
        "norm of 0 by the last unit",
        "nonzero = nonzero || sums.zeros < unit.elements;",
        "nonzero = sums.zeros < unit.elements;",
        PLAIN,
    ),
    _kernel(
        "launch_plan_test",
        "find_nonfinite_kernels.cuh",
        "offsets of 32 bits",
        "const std::uint64_t offset = static_cast<std::uint64_t>(id - first) * core::kUnitBytes;",
        "const std::uint32_t offset = (id - first) * 16384U;",
        PLAIN,
    ),
    _kernel(
        "launch_plan_test",
        "find_nonfinite_kernels.cuh",
        "indices of 32 bits",
        "return index * 4 + kind;",
        "return static_cast<std::uint32_t>(index) * 4U + kind;",
        PLAIN,
    ),
]
STEPS = [
    _kernel("step_factors_kernel_test", file, name, line, replacement, PLAIN)
    for file, name, line, replacement in [
        (
            "step_factors_kernels.cuh",
            "coefficient of another dtype",
            "core::step_scalars(*arguments.found_inf, scaling, number_or(arguments.clip_coefficient, 1.0),",
            "core::step_scalars(*arguments.found_inf, scaling, "
            "number_or({arguments.clip_coefficient.address, core::kFloat64}, 1.0),",
        ),
        (
            "step_factors_kernels.cuh",
            "limit of the tensor ignored",
            "const core::ClipRule rule = {number_or(arguments.max_norm, arguments.limit), arguments.eps};",
            "const core::ClipRule rule = {arguments.limit, arguments.eps};",
        ),
        (
            "scalars.cuh",
            "user's scale not rounded",
            "static_cast<double>(static_cast<float>(number_or(user_scale, 1.0)))};",
            "number_or(user_scale, 1.0)};",
        ),
        (
            "step_arguments.h",
            "stride of a vector ignored",
            "return vectors[part].values[slot * vectors[part].stride];",
            "return vectors[part].values[slot];",
        ),
    ]
]

MUTATIONS = [*BUGS, *UNIT_SUMS, *BLOCK_SUMS, *TABLE, *STORES, *STEPS]
