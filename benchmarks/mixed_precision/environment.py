"""The machine and the versions: what a run needs, and what a record says about them.

A record names hardware and software only: no paths, no host name.
"""

import importlib.util
import pathlib
import platform
from typing import Any

import torch
from checkout import commit

from mixed_precision.clock import MEBIBYTE
from mixed_precision.errors import UnavailableError
from mixed_precision.options import Options


def check_packages() -> None:
    missing = [name for name in ("transformers", "jsonschema") if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise UnavailableError(f"the experiment needs {names}: pip install -r requirements-dev.txt")


def check_hardware(run_mode: str, candidate_dtype: str) -> None:
    if run_mode != "real_gpu":
        return  # the CPU's autocast computes in both dtypes everywhere
    if not torch.cuda.is_available():
        raise UnavailableError("real_gpu: expected a CUDA device, and torch finds none; real_cpu runs without")
    if candidate_dtype == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        name = torch.cuda.get_device_name()
        raise UnavailableError(f"real_gpu: --candidate-dtype bfloat16: {name} has no bfloat16; use float16")


def scaler_class(name: str) -> type[torch.amp.GradScaler]:
    if name == "torch":
        return torch.amp.GradScaler
    try:
        import ampscaler
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise UnavailableError(f"--scaler {name}: the package ampscaler cannot be imported: {reason}") from error
    return ampscaler.GradScaler


def scaler_classes(options: Options) -> dict[str, type[torch.amp.GradScaler]]:
    return {name: scaler_class(name) for name in options.scalers}


def cpu_name() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def describe_hardware(device: torch.device) -> dict[str, Any]:
    hardware: dict[str, Any] = {"device": device.type, "cpu": cpu_name(), "cpu_threads": torch.get_num_threads()}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        hardware |= {
            "gpu": properties.name,
            "gpu_memory_mb": properties.total_memory // MEBIBYTE,
            "gpu_capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
        }
    return hardware


def describe_software(options: Options) -> dict[str, str | None]:
    import transformers

    software: dict[str, str | None] = {
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "ampscaler": None,
    }
    if "ampscaler" in options.scalers:
        import ampscaler

        software["ampscaler"] = ampscaler.__version__
    return software
