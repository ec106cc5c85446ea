"""The command line: a dry run, a real run or the reading of a record, each ending with a documented exit code."""

import sys
from collections.abc import Sequence

import torch

from mixed_precision import environment, hub, reading, record, report
from mixed_precision.errors import ACCEPTED, REJECTED, ExperimentError, UnavailableError
from mixed_precision.model import load_model, plan_model
from mixed_precision.options import Options, parse_options
from mixed_precision.runs import Bench, run_all
from mixed_precision.steps import reproducible

MODES = ("real_cpu", "real_gpu")


def describe_mode(options: Options, mode: str) -> tuple[bool, str]:
    """Whether `mode` could run here, and with which model or why not."""
    try:
        environment.check_hardware(mode, options.candidate_dtype)
        return True, plan_model(options, mode).describe()
    except UnavailableError as error:
        return False, str(error).removeprefix(f"{mode}: ")


def describe_checkpoint(options: Options) -> str:
    try:
        found = hub.find(options.revision, hub.WEIGHT_FILES)
    except hub.NotFound as error:
        return str(error)
    return f"commit {found.commit}, in the cache" if found.source == "cache" else f"commit {found.commit}, on the hub"


def dry_run(options: Options) -> int:
    """Checks options, output, packages, hardware and the model's availability. Loads no weights, writes nothing."""
    path = record.check_output(options)
    environment.check_packages()
    classes = environment.scaler_classes(options)
    modes = {mode: describe_mode(options, mode) for mode in MODES}
    print("dry run: nothing is trained, loaded or written")
    print("scalers    " + ", ".join(f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in classes.values()))
    print(f"runs       baseline float32, candidate {options.candidate_dtype}, overflow {options.candidate_dtype}")
    print(
        f"workload   batch {options.batch_size}, {options.seq_len} tokens, {options.warmup} + {options.repeats} steps, "
        f"at most {options.max_scale_backoff_steps} extra attempts, initial scale {options.initial_scale:g}"
    )
    for mode, (available, text) in modes.items():
        print(f"{mode:<10} {text if available else f'not available: {text}'}")
    print(f"checkpoint {hub.MODEL_ID}: {describe_checkpoint(options)}")
    print(f"record     {path}" + (" (replaces the one there)" if path.exists() else ""))
    if not any(available for available, _ in modes.values()):
        raise UnavailableError("no run mode is available: " + "; ".join(text for _, text in modes.values()))
    return ACCEPTED


def is_out_of_memory(error: Exception) -> bool:
    """torch's allocator for the CPU has no exception of its own."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def real_run(options: Options) -> int:
    record.check_output(options)
    record.check_folder(options)
    environment.check_packages()
    environment.check_hardware(options.run_mode, options.candidate_dtype)
    classes = environment.scaler_classes(options)
    plan = plan_model(options, options.run_mode)
    print(f"model: {plan.describe()}", flush=True)
    device = torch.device("cuda" if options.run_mode == "real_gpu" else "cpu")
    try:
        model = load_model(plan, options)
        bench = Bench(model, device, options)
        with reproducible(model.network):
            runs = run_all(bench, classes)
            result = record.assemble(options, model, bench, runs)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise UnavailableError(f"{options.run_mode}: not enough memory: {str(error).splitlines()[0]}") from error
    # Before the write: a result that took hours is not lost with a full disk.
    print(f"\n{report.make_report(result)}", flush=True)
    path = record.write(result, options)
    print(f"\nrecord: {path}")
    return ACCEPTED if result["decision"] == "accept" else REJECTED


def run(options: Options) -> int:
    if options.read is not None:
        environment.check_packages()
        stored = reading.read(options.output_dir, options.read)
        print(report.make_report(stored))
        return ACCEPTED
    return dry_run(options) if options.run_mode == "dry_run" else real_run(options)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    try:
        return run(options)
    except ExperimentError as error:
        print(f"train_mixed_precision_backward: {error}", file=sys.stderr)
        return error.exit_code
