"""The list of behaviours: what a behaviour is, the decorator that adds one, the sections, the lookup.

A behaviour is one sentence of the contract with its number and a function that checks it on any scaler. The files in
the folder `contract` add them; importing that folder fills the list.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampscaler.conformance.case import Case

SECTIONS = {
    1: "Names",
    2: "Constructor",
    3: "Lazy initialisation",
    4: "scale",
    5: "unscale_",
    6: "step",
    7: "update",
    8: "Getters and setters",
    9: "state_dict and load_state_dict",
    10: "Pickle and copy",
    11: "Optimizers that handle the scale themselves",
    12: "What other libraries rely on",
    13: "Operators",
    14: "Errors and state machine",
    15: "Version differences",
    16: "Warts of torch's scaler",
}
WARTS = 16

Check = Callable[["Case"], None]


@dataclasses.dataclass(frozen=True)
class Behaviour:
    """One sentence of the contract.

    `private`: about the names with an underscore that subclasses of torch.amp.GradScaler share.
    `operators`: needs no scaler; also run when only a pair of operators is under test.
    `proven_on`: device types for which the sentence is known to hold, None for all; elsewhere a difference is
    reported, not failed.
    `only_on`: the device type that the sentence is about, if it is about one.
    """

    id: str
    sentence: str
    check: Check
    private: bool = False
    operators: bool = False
    proven_on: tuple[str, ...] | None = None
    only_on: str | None = None

    @property
    def section(self) -> int:
        """The section's number: 4 for S4.12, U4.1; 16 for the warts."""
        return WARTS if self.id.startswith("W") else int(re.split(r"[SU.]", self.id)[1])

    @property
    def source(self) -> str:
        """Where the check is written, as module::function."""
        return f"{self.check.__module__.rsplit('.', 1)[-1]}::{self.check.__name__}"

    def is_proven_on(self, device_type: str) -> bool:
        """False where a difference is a finding and not a failure."""
        return self.proven_on is None or device_type in self.proven_on


_behaviours: dict[str, Behaviour] = {}


def behaviour(
    id: str,
    sentence: str,
    *,
    private: bool = False,
    operators: bool = False,
    proven_on: tuple[str, ...] | None = None,
    only_on: str | None = None,
) -> Callable[[Check], Check]:
    """Adds the decorated function to the contract; the arguments are the fields of Behaviour."""

    def add(check: Check) -> Check:
        if id in _behaviours:
            raise ValueError(f"behaviour: id: {id} is taken by {_behaviours[id].source}")
        _behaviours[id] = Behaviour(id, sentence, check, private, operators, proven_on, only_on)
        return check

    return add


def _order(behaviour: Behaviour) -> tuple[int, str, int]:
    return behaviour.section, behaviour.id[0], int(re.split(r"[SUW.]", behaviour.id)[-1])


def all_behaviours() -> list[Behaviour]:
    """The whole contract, by section and number."""
    from ampscaler.conformance import contract

    for module in pkgutil.iter_modules(contract.__path__):
        importlib.import_module(f"{contract.__name__}.{module.name}")
    return sorted(_behaviours.values(), key=_order)
