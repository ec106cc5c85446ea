"""The options of the experiment, their defaults, and the checks of single values.

Checks that need hardware, files or a network are made in environment, record and hub.
"""

import argparse
import dataclasses
import math
import pathlib
import re
from collections.abc import Callable, Sequence

RESULTS = pathlib.Path(__file__).parents[1] / "results/train_mixed_precision_backward"
LABEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
GROWTH_INTERVAL = 1000
BACKOFF_FACTOR = 0.5
MAX_FLOAT32 = (2 - 2**-23) * 2.0**127
MIN_FLOAT32 = 2.0**-126  # the smallest normal one
MOST = 10**9
SCALERS = ("torch", "ampscaler")


@dataclasses.dataclass(frozen=True)
class Options:
    """What was asked for."""

    run_mode: str
    scaler: str
    candidate_dtype: str
    run_label: str
    profile_id: str
    model: str
    revision: str
    batch_size: int
    seq_len: int
    repeats: int
    warmup: int
    learning_rate: float
    max_norm: float
    initial_scale: float
    max_scale_backoff_steps: int
    seed: int
    output_dir: pathlib.Path
    overwrite: bool
    read: str | None

    @property
    def scalers(self) -> tuple[str, ...]:
        return SCALERS if self.scaler == "both" else (self.scaler,)

    @property
    def successes(self) -> int:
        """How many steps a run has to apply."""
        return self.warmup + self.repeats


def number(
    kind: Callable[[str], float], expected: str, accepts: Callable[[float], bool]
) -> Callable[[str], int | float]:
    """A type for argparse: a number that `accepts` accepts."""

    def parse(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not accepts(value):
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
        return value

    return parse


def label(text: str) -> str:
    """A label is a part of a file name."""
    if not re.fullmatch(LABEL, text):
        raise argparse.ArgumentTypeError(f"expected letters, digits, '.', '_' or '-' (at most 100), got {text!r}")
    return text


count = number(int, f"a whole number in [1, {MOST}]", lambda value: 1 <= value <= MOST)
count_or_0 = number(int, f"a whole number in [0, {MOST}]", lambda value: 0 <= value <= MOST)
length = number(int, f"a whole number in [2, {MOST}]", lambda value: 2 <= value <= MOST)
seed = number(int, "a whole number in [0, 2**63)", lambda value: 0 <= value < 2**63)
positive = number(float, "a normal float32 number > 0", lambda value: MIN_FLOAT32 <= value <= MAX_FLOAT32)


def add_workload(parser: argparse.ArgumentParser) -> None:
    workload = parser.add_argument_group("workload")
    workload.add_argument("--candidate-dtype", choices=("float16", "bfloat16"), default="float16")
    workload.add_argument("--batch-size", type=count, default=1)
    workload.add_argument("--seq-len", type=length, default=128)
    workload.add_argument("--repeats", type=count, default=20, help="measured steps of each run")
    workload.add_argument("--warmup", type=count_or_0, default=1, help="steps before them, not measured")
    workload.add_argument("--learning-rate", type=positive, default=1e-4, help="of SGD")
    workload.add_argument("--max-norm", type=positive, default=1.0, help="the norm to which gradients are clipped")
    workload.add_argument("--initial-scale", type=positive, default=65536.0)
    workload.add_argument("--max-scale-backoff-steps", type=count_or_0, default=12, help="extra attempts of a run")
    workload.add_argument("--seed", type=seed, default=2026)


def add_model(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model",
        choices=("auto", "full", "checkpoint", "random", "tiny"),
        default="auto",
        help="checkpoint: Qwen2.5-0.5B; random: its architecture with random weights; full: the checkpoint if it is "
        "cached or the hub answers, else random; tiny: a small random one. auto: tiny in real_cpu, full in real_gpu",
    )
    model.add_argument("--revision", default="main", help="of the checkpoint")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="train_mixed_precision_backward.py",
        description="Trains one causal language model in FP32, in low precision, and with an injected overflow.",
        epilog="exit codes: 0 accept, or a dry run or --read without a problem; 1 reject; 2 wrong options; 3 hardware, "
        "a package or the model is not available; 4 the label exists; 5 the record to read is missing or broken",
        allow_abbrev=False,
    )
    parser.add_argument("--run-mode", choices=("dry_run", "real_cpu", "real_gpu"), default="dry_run")
    parser.add_argument("--scaler", choices=(*SCALERS, "both"), default="ampscaler")
    add_workload(parser)
    add_model(parser)
    output = parser.add_argument_group("record")
    output.add_argument("--run-label", type=label, default="local", help="names the record")
    output.add_argument("--profile-id", type=label, default="TRAIN-CUDA-MECHANISM")
    output.add_argument("--output-dir", type=pathlib.Path, default=RESULTS, help="folder of the records")
    output.add_argument("--overwrite", action="store_true", help="replace the record of this label")
    output.add_argument("--read", metavar="LABEL", type=label, help="print a stored record and do nothing else")
    return parser


def parse_options(arguments: Sequence[str] | None) -> Options:
    return Options(**vars(make_parser().parse_args(arguments)))
