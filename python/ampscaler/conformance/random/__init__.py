"""Random programs on torch's scaler and on the scaler under test, in lock-step. Needs the package hypothesis.

A program is a list of statements, each a line of Python. It runs in two worlds that share no object, and after every
statement everything that can be seen of the two is compared. A program that goes differently shrinks to a short script.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ampscaler.conformance.random.search import Outcome

__all__ = ["run_random"]


def run_random(scaler_class: Any, programs: int, seed: int, device: str = "cpu") -> Outcome:
    """Runs that many random programs, or fewer if one goes differently: the outcome then has a script that shows it.

    A class without torch's private names runs programs of public calls that it should answer as torch does. Raises
    ModuleNotFoundError without the package hypothesis.
    """
    if importlib.util.find_spec("hypothesis") is None:
        problem = "random programs need the package hypothesis: pip install 'ampscaler[conformance]'"
        raise ModuleNotFoundError(problem, name="hypothesis")
    from ampscaler.conformance.random.search import search

    return search(scaler_class, programs, seed, device)
