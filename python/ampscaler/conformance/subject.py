"""What is under test: a scaler class, found by its qualified name, and a pair of operators."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import torch

ATEN = ("aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_")
AMPSCALER = ("ampscaler::unscale_", "ampscaler::update_scale_")
TORCH_SCALER = "torch.amp:GradScaler"
DROP_IN = "ampscaler:GradScaler"
CPP_CLASS = "ampscaler:AmpScaler"


class UnknownSubject(Exception):
    """The named class or operator does not exist; the text says what was looked for."""


@dataclasses.dataclass(frozen=True)
class OperatorPair:
    """`unscale(grads, found_inf, inv_scale)`, `update(scale, growth_tracker, found_inf, growth, backoff, interval)`."""

    names: tuple[str, str]
    unscale: Callable[..., Any]
    update: Callable[..., Any]

    @property
    def is_aten(self) -> bool:
        """True for torch's own pair: return values and the dispatcher's texts are compared for these only."""
        return self.names == ATEN


@dataclasses.dataclass(frozen=True)
class Subject:
    """A scaler class with its name, or None where only operators are under test; and the operators of section 13."""

    name: str
    scaler_class: Any
    operators: OperatorPair

    @property
    def is_private(self) -> bool:
        """True if the class has the names with an underscore that subclasses of torch's scaler share."""
        return hasattr(self.scaler_class, "_unscale_grads_") and hasattr(self.scaler_class, "_maybe_opt_step")


def import_module(name: str) -> Any:
    """The module; UnknownSubject if importing it fails, for whatever reason."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise UnknownSubject(f"module '{name}': {type(error).__name__}: {error}") from error


def find_operators(unscale: str, update: str) -> OperatorPair:
    """The operators with these qualified names, such as "aten::_amp_update_scale_". Raises UnknownSubject."""
    return OperatorPair((unscale, update), _find_operator(unscale), _find_operator(update))


def _find_operator(name: str) -> Any:
    namespace, separator, operator = name.partition("::")
    packet, _, overload = operator.partition(".")
    if not separator or not packet:
        raise UnknownSubject(f"operator '{name}': expected a qualified name such as {ATEN[0]}")
    try:
        found = getattr(getattr(torch.ops, namespace), packet)
        return getattr(found, overload) if overload else found
    except AttributeError as error:
        raise UnknownSubject(f"operator '{name}' is not registered; --import names the module that does so") from error


def find_subject(name: str, operators: tuple[str, str] | None = None) -> Subject:
    """The scaler class `module:Class`, with its operators: given, or our own for our classes, or torch's."""
    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name:
        raise UnknownSubject(f"scaler '{name}': expected module:Class, such as {DROP_IN}")
    found: Any = import_module(module_name)
    try:
        for part in class_name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise UnknownSubject(f"scaler '{name}': {error}") from error
    if not isinstance(found, type):
        raise UnknownSubject(f"scaler '{name}': expected a class, got {type(found).__name__}")
    default = AMPSCALER if name in (DROP_IN, CPP_CLASS) else ATEN
    return Subject(name, found, find_operators(*(operators or default)))
