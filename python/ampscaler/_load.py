"""Compares the torch that this package was built with with the running one, before the library is loaded.

A library built for another torch fails with an undefined symbol, or worse, runs; this fails with a sentence.
"""

import torch

from ampscaler import _build_info


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def mismatch(torch_version: str, torch_cuda: str | None, built_version: str, built_cuda: str) -> str | None:
    """What keeps a build for `built_version` and CUDA major `built_cuda` ("" for CPU) from running; None if nothing."""
    fix = (
        "Rebuild it for the installed torch, in ampscaler's source folder: "
        "pip install --no-build-isolation --force-reinstall --no-deps ."
    )
    if _minor(torch_version) != _minor(built_version):
        return f"ampscaler was built with torch {built_version}, but torch {torch_version} is installed. {fix}"
    if built_cuda and built_cuda != (torch_cuda or "").split(".")[0]:
        found = f"CUDA {torch_cuda}" if torch_cuda else "no CUDA"
        return f"ampscaler was built with CUDA {built_cuda}, but the installed torch has {found}. {fix}"
    return None


def check_torch() -> None:
    """Raises ImportError, with the command that helps, if the running torch is not the one this was built with."""
    problem = mismatch(torch.__version__, torch.version.cuda, _build_info.TORCH_VERSION, _build_info.CUDA_MAJOR)
    if problem:
        raise ImportError(problem)
