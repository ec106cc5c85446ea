"""Scalers with one known defect each. The suite must reject each in every section that its `sections` names.

A suite that lets one pass checks too little.
"""

from __future__ import annotations

import inspect
from typing import Any

from . import gradients, protocol, state, updates

#: Every wrong scaler, by class name.
WRONG_SCALERS: dict[str, Any] = {
    name: found
    for module in (gradients, protocol, state, updates)
    for name, found in vars(module).items()
    if inspect.isclass(found) and found.__module__ == module.__name__ and hasattr(found, "sections")
}
