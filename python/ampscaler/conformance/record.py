"""A recorded scaler: forwards everything to the scaler under test and writes down what was called, with the outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import torch

from ampscaler.conformance.values import show, without_addresses


@dataclasses.dataclass
class Call:
    """One call of a scaler's method, or an assignment to one of its attributes."""

    scaler: Any
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any = None
    error: Exception | None = None
    version: int | None = None  # of a tensor that was returned


class Observer(Protocol):
    """Sees every call before and after it happens; the recorder of scenarios for C++ is one."""

    def released(self, scaler: Any) -> None:
        """From now on calls of the scaler may happen that are not seen."""

    def before(self, call: Call) -> None:
        """The call is about to be made."""

    def after(self, call: Call) -> None:
        """The call has its value or its error."""


class Log:
    """The calls of one behaviour, in order, and the names that its objects have in a report.

    Values are turned into text when the report is written, not before: reading a tensor at the time of the call would
    show in behaviours that count operators or host reads.
    """

    def __init__(self, observer: Observer | None = None) -> None:
        self.calls: list[Call] = []
        self.notes: dict[int, str] = {}
        self.observer = observer
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []

    def name(self, value: Any, kind: str) -> str:
        """The object's name, such as optimizer1, a new one if it has none. Keeps the object: its id stays its own."""
        if id(value) in self._names:
            return self._names[id(value)]
        taken = sum(name.startswith(kind) for name in self._names.values())
        self._names[id(value)] = f"{kind}{taken + 1}"
        self._kept.append(value)
        return self._names[id(value)]

    def note(self, text: str) -> None:
        """A line of the report that is no call: how a scaler or an optimizer was made."""
        self.notes.setdefault(len(self.calls), "")
        self.notes[len(self.calls)] += text + "\n"

    def show(self, value: Any) -> str:
        """Like values.show, with the names given here."""
        if id(value) in self._names:
            return self._names[id(value)]
        if isinstance(value, Recorded):
            return self.show(unwrapped(value))
        return show(value, self.show)

    def release(self, scaler: Any) -> None:
        """The scaler itself is handed out: tells the observer that it may miss calls."""
        if self.observer:
            self.observer.released(scaler)

    def run(self, call: Call, function: Callable[..., Any]) -> Any:
        """Makes the call, with its outcome in the log."""
        self.calls.append(call)
        if self.observer:
            self.observer.before(call)
        try:
            call.value = function(*call.args, **call.kwargs)
            call.version = version_of(call.value)
        except Exception as error:
            call.error = error
            raise
        finally:
            if self.observer:
                self.observer.after(call)
        return call.value

    def lines(self) -> list[str]:
        """The report of all calls, one per line."""
        result = self.notes.get(0, "").splitlines()
        for number, call in enumerate(self.calls, start=1):
            result += [self._line(call), *self.notes.get(number, "").splitlines()]
        return result

    def _line(self, call: Call) -> str:
        target = self.show(call.scaler)
        if call.name == "=":
            return f"{target}.{call.args[0]} = {self.show(call.args[1])}"
        arguments = [self.show(arg) for arg in call.args]
        arguments += [f"{key}={self.show(value)}" for key, value in call.kwargs.items()]
        text = f"{target}.{call.name}({', '.join(arguments)})"
        if call.error is not None:
            message = without_addresses(str(call.error)).partition("\n")[0]
            return f"{text}  raises {type(call.error).__name__}: {message}"
        if call.value is None:
            return text
        changed = " (changed in place since)" if version_of(call.value) != call.version else ""
        return f"{text}  -> {self.show(call.value)}{changed}"


class Recorded:
    """Stands before a scaler: all reaches the scaler itself; calls of methods and assignments are recorded.

    `Case.raw` gives the scaler for what needs the object itself: pickle, isinstance, identity.
    """

    def __init__(self, scaler: Any, log: Log) -> None:
        object.__setattr__(self, "_recorded", scaler)
        object.__setattr__(self, "_log", log)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._recorded, name)
        if not callable(value) or isinstance(value, type):
            return value

        def method(*args: Any, **kwargs: Any) -> Any:
            return self._log.run(Call(self._recorded, name, args, kwargs), value)

        return method

    def __setattr__(self, name: str, value: Any) -> None:
        call = Call(self._recorded, "=", (name, value), {})
        self._log.run(call, lambda attribute, new: setattr(self._recorded, attribute, new))

    def __delattr__(self, name: str) -> None:
        delattr(self._recorded, name)


def unwrapped(value: Any) -> Any:
    """The scaler itself, if that is what is recorded; else the value."""
    return value._recorded if isinstance(value, Recorded) else value


def version_of(value: Any) -> int | None:
    """The version counter of a tensor that has one, without an operator that a dispatch mode would see."""
    return value._version if type(value) is torch.Tensor and not value.is_inference() else None
