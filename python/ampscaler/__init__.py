"""ampscaler: safe and cheap low-precision backward passes for PyTorch.

GradScaler is a drop-in for torch.amp.GradScaler; AmpScaler is the C++ class behind pybind11; torch.ops.ampscaler.*
are the operators, ampscaler.ops names what they return; functional holds the chain without state; RobustAMPManager is
a whole training step. C++ programs find the CMake package in `cmake_prefix_path`.
"""

import pathlib as _pathlib

from ampscaler import _load

_load.check_torch()

from ampscaler import _C, functional, ops  # noqa: E402  (loading the library needs the check first)
from ampscaler._build_info import VERSION as __version__  # noqa: E402
from ampscaler._C import AmpScaler, ScalePolicy, StepOutcome, StepResult  # noqa: E402
from ampscaler.grad_scaler import GradScaler  # noqa: E402
from ampscaler.manager import RobustAMPManager  # noqa: E402

#: Folder for CMAKE_PREFIX_PATH, so that `find_package(AmpScaler)` works in a C++ project.
cmake_prefix_path = str(_pathlib.Path(_C.__file__).parent / "share" / "cmake")

__all__ = [
    "AmpScaler",
    "GradScaler",
    "RobustAMPManager",
    "ScalePolicy",
    "StepOutcome",
    "StepResult",
    "__version__",
    "cmake_prefix_path",
    "functional",
    "ops",
]
