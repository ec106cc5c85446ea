"""Prints what the build must know about the installed torch, one `name=value` a line, for CMake to read.

Run by the interpreter that the extension is built for. Fails with a plain sentence when torch is missing.
"""

import pathlib
import sys

try:
    import torch
except ImportError:
    sys.exit("torch is not installed for this Python: install torch, then build again")

facts = {
    "dir": pathlib.Path(torch.__file__).parent,
    "version": torch.__version__.split("+")[0],
    "cuda_version": torch.version.cuda or "",
    # "sm_75 sm_80 ..." is what torch itself was compiled for; without CUDA there are none.
    "cuda_archs": " ".join(
        arch.removeprefix("sm_") for arch in (torch._C._cuda_getArchFlags() or "").split() if arch.startswith("sm_")
    )
    if torch.version.cuda
    else "",
}
for name, value in facts.items():
    print(f"{name}={value}")
