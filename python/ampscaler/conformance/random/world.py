"""A world: a namespace in which the statements of a program run, with one scaler class. Two worlds share no object."""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import pickle
import re
import sys
import types
import warnings
from typing import Any

import torch

from ampscaler.conformance.random import optimizers, snapshot

#: Classes made by a program are found here by pickle, as they would be in the script's own module.
MODULE = "ampscaler_random_program"
#: What a program may use besides builtins.
NAMES: dict[str, Any] = {"torch": torch, "copy": copy, "pickle": pickle, "inf": float("inf"), "nan": float("nan")}
NAMES |= {name: value for name, value in vars(optimizers).items() if isinstance(value, type)}


@dataclasses.dataclass(frozen=True)
class Observation:
    """What a statement did, as texts that compare with ==, and what could be seen afterwards."""

    result: str
    raised: bool
    warned: str
    seen: snapshot.Seen
    #: Expressions whose value is another object than before the statement.
    replaced: tuple[str, ...]


@functools.lru_cache(maxsize=20_000)
def _compiled(text: str) -> types.CodeType:
    """For eval where the statement is an expression, so that its value is seen; else for exec."""
    tree = ast.parse(text)
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        return compile(text, "<program>", "eval")
    return compile(tree, "<program>", "exec")


class World:
    """Runs statements one by one. Under torch.set_warn_always only: else a warning of torch reaches one world alone."""

    def __init__(self, scaler_class: Any, private: bool) -> None:
        self._module = types.ModuleType(MODULE)
        self.names = vars(self._module)
        self.names |= NAMES | {"Scaler": scaler_class, "calls": []}
        self._private = private
        self._class_name: str = scaler_class.__name__
        self._objects: dict[str, Any] = {}

    def run(self, text: str) -> Observation:
        """Runs a statement, whatever comes of it."""
        sys.modules[MODULE] = self._module
        raised = False
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                value = eval(_compiled(text), self.names)
                result = snapshot.show(value)
            except (Exception, SystemExit) as error:
                raised, result = True, snapshot.show(error)
        seen, objects = snapshot.see(self.names, self._private)
        replaced = tuple(
            key for key, item in objects.items() if key in self._objects and self._objects[key] is not item
        )
        self._objects = objects
        warned = snapshot.show([w.message for w in caught]) if caught else ""
        return Observation(self._anonymous(result), raised, self._anonymous(warned), seen, replaced)

    def _anonymous(self, text: str) -> str:
        """The text without what the worlds do not share: the class's name, and the version of a private scale."""
        text = text.replace(f"'{self._class_name}'", "'Scaler'")
        return text if self._private else re.sub(r"version \d+; expected version \d+", "another version", text)
