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


def _unscale(name: str, line: str, replacement: str, *builds: str) -> Mutation:
    file = "csrc/kernels/cuda/unscale_kernels.cuh"
    return Mutation(f"unscale: {name}", "simt_test", builds, file, line, replacement)


UNSCALE = [
    _unscale(
        "flags not merged",
        "finite &= unscale_element(data[element], factor);",
        "finite = unscale_element(data[element], factor);",
        PLAIN,
    ),
    _unscale(
        "one element too far",
        "for (std::int64_t element = chunk.begin + threadIdx.x; element < chunk.end;",
        "for (std::int64_t element = chunk.begin + threadIdx.x; element <= chunk.end;",
        PLAIN,
        ASAN,
        RACE,
    ),
    _unscale(
        "elements done twice",
        "element += kUnscaleThreads) {",
        "element += kUnscaleThreads / 2) {",
        PLAIN,
        RACE,
    ),
    _unscale(
        "a chunk too few",
        "for (std::int64_t i = blockIdx.x; i < chunks; i += gridDim.x) {",
        "for (std::int64_t i = blockIdx.x; i < chunks - 1; i += gridDim.x) {",
        PLAIN,
    ),
    _unscale(
        "chunks left out when there are more than blocks",
        "for (std::int64_t i = blockIdx.x; i < chunks; i += gridDim.x) {",
        "for (std::int64_t i = blockIdx.x; i < chunks; i += chunks) {",
        PLAIN,
    ),
    _unscale(
        "factor test inverted",
        "store(element, inv_scale == 1 ? value : value * inv_scale);",
        "store(element, inv_scale != 1 ? value : value * inv_scale);",
        PLAIN,
    ),
    _unscale("float64 not narrowed", "return is_finite_on_cuda(value);", "return core::is_finite(value);", PLAIN),
    _unscale("flag inverted", "if (!finite) {", "if (finite) {", PLAIN),
    _unscale("flag beyond 1", "*found_inf = 1.0F;", "*found_inf += 2.0F;", PLAIN),
]

MUTATIONS = [*BUGS, *UNSCALE]
