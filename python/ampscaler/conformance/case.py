"""What a behaviour works with: makes scalers, parameters and optimizers on the device under test, and compares.

A comparison that does not hold raises Difference, which carries the calls so far, the expected and the real thing.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ampscaler.conformance.record import Log, Observer, Recorded, unwrapped
from ampscaler.conformance.subject import OperatorPair, Subject
from ampscaler.conformance.values import canonical, show, step_value, without_addresses


class Difference(Exception):
    """The scaler under test did something else than the contract says."""

    def __init__(self, what: str, expected: str, got: str) -> None:
        super().__init__(f"{what}: expected {expected}, got {got}")
        self.what, self.expected, self.got = what, expected, got


class NotApplicable(Exception):
    """This behaviour cannot be observed here; the text says why."""


class Case:
    """One run of one behaviour on one subject and device."""

    def __init__(self, subject: Subject, device: torch.device, observer: Observer | None = None) -> None:
        self.subject = subject
        self.device = device
        self.log = Log(observer)

    # ---- what is under test ----

    @property
    def scaler_class(self) -> Any:
        """The class under test, for subclasses of it and for calls of its constructor that should fail."""
        return self.subject.scaler_class

    @property
    def private(self) -> bool:
        """True if the class has torch's private names, such as _unscale_grads_ and _per_optimizer_states."""
        return self.subject.is_private

    @property
    def operators(self) -> OperatorPair:
        """The pair of operators under test."""
        return self.subject.operators

    def new_scaler(self, init_scale: Any = 4.0, *, of: Any = None, **options: Any) -> Any:
        """A recorded scaler for the device, not yet initialised. `of`: another class than the one under test."""
        options = {"device": self.device.type, "init_scale": init_scale, **options}
        scaler = (of or self.scaler_class)(**options)
        name = self.log.name(scaler, "scaler")
        arguments = ", ".join(f"{key}={show(value)}" for key, value in options.items())
        self.log.note(f"{name} = {type(scaler).__name__}({arguments})")
        return Recorded(scaler, self.log)

    def ready_scaler(self, init_scale: Any = 4.0, **options: Any) -> Any:
        """A recorded scaler that has scaled a loss, so that unscale_, step and update may follow."""
        scaler = self.new_scaler(init_scale, **options)
        scaler.scale(self.tensor(1.0))
        return scaler

    def recorded(self, scaler: Any) -> Any:
        """Records the calls of a scaler that came about by itself: unpickled, copied, made by hand."""
        self.log.name(scaler, "scaler")
        return Recorded(scaler, self.log)

    def raw(self, scaler: Any) -> Any:
        """The scaler itself, for pickle, copies, isinstance and identity. What is done with it is not recorded."""
        scaler = unwrapped(scaler)
        self.log.release(scaler)
        return scaler

    def returned(self, result: Any) -> Any:
        """What the optimizer's step returned: `result`, or its `value` for scalers whose step returns a report."""
        return step_value(result)

    # ---- tensors, parameters, optimizers ----

    def tensor(self, data: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A tensor on the device."""
        return torch.tensor(data, dtype=dtype, device=self.device)

    def parameter(self, gradient: Any, dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
        """A parameter of ones, shaped like its gradient. `gradient`: a tensor, or data for one of `dtype`; or None."""
        if gradient is None:
            return torch.nn.Parameter(torch.ones(2, dtype=dtype, device=self.device))
        tensor = gradient if isinstance(gradient, torch.Tensor) else self.tensor(gradient, dtype)
        parameter = torch.nn.Parameter(torch.ones(tensor.shape, dtype=tensor.dtype, device=tensor.device))
        parameter.grad = tensor
        return parameter

    def sgd(self, *parameters: Any, **options: Any) -> Any:
        """torch.optim.SGD with learning rate 1; data and tensors become parameters with that gradient."""
        made = [p if isinstance(p, torch.nn.Parameter) else self.parameter(p) for p in parameters]
        return self.optimizer(torch.optim.SGD(made, **{"lr": 1.0, **options}))

    def optimizer(self, optimizer: Any) -> Any:
        """Gives an optimizer, or what stands for one, a name in the report. Returns it."""
        name = self.log.name(optimizer, "optimizer")
        self.log.note(f"{name}: {type(optimizer).__name__}, gradients {_show_gradients(optimizer)}")
        return optimizer

    def parameters(self, optimizer: Any) -> list[torch.nn.Parameter]:
        """All parameters of an optimizer, in order."""
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def gradients(self, optimizer: Any) -> list[Any]:
        """The gradients as lists of Python numbers, sparse ones in dense form, None where there is none."""
        gradients = [parameter.grad for parameter in self.parameters(optimizer)]
        return [None if gradient is None else gradient.to_dense().tolist() for gradient in gradients]

    def values(self, optimizer: Any) -> list[Any]:
        """The parameters as lists of Python numbers."""
        return [parameter.tolist() for parameter in self.parameters(optimizer)]

    # ---- what can be seen of any scaler ----

    def growth_tracker(self, scaler: Any) -> Any:
        """The number of clean updates since the last change of scale."""
        return scaler.state_dict()["_growth_tracker"]

    def stage(self, scaler: Any, optimizer: Any) -> str:
        """The name of the optimizer's stage. Private protocol only; creates the entry, as any reader does."""
        name: str = scaler._per_optimizer_states[id(optimizer)]["stage"].name
        return name

    # ---- comparisons ----

    def equal(self, got: Any, expected: Any, what: str = "result") -> None:
        """Equal to the bit, type, dtype, shape and device included."""
        if canonical(unwrapped(got)) != canonical(unwrapped(expected)):
            raise Difference(what, self.log.show(expected), self.log.show(got))

    def same(self, got: Any, expected: Any, what: str = "result") -> None:
        """The same object."""
        if unwrapped(got) is not unwrapped(expected):
            raise Difference(what, f"the same object, {self.log.show(expected)}", f"another, {self.log.show(got)}")

    def true(self, condition: Any, what: str) -> None:
        """The sentence `what` holds."""
        if not condition:
            raise Difference(what, "true", "false")

    def raises(
        self,
        kind: type[Exception],
        text: str | re.Pattern[str] | None,
        function: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Exception:
        """The call raises exactly this type, with this text or a match of this pattern; None: any text."""
        expected = f"{kind.__name__}: {text.pattern if isinstance(text, re.Pattern) else text or '(any text)'}"
        try:
            value = function(*args, **kwargs)
        except Exception as error:
            message = str(error)
            if type(error) is not kind or not _fits(message, text):
                raise Difference("error", expected, f"{type(error).__name__}: {without_addresses(message)}") from error
            return error
        raise Difference("error", expected, f"no error, {self.log.show(value)}")

    def warns(
        self, expected: Sequence[tuple[type[Warning], str]], function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """The call gives exactly these warnings, as (category, text). Returns its value."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = function(*args, **kwargs)
        self.equal([(w.category, str(w.message)) for w in caught], list(expected), "warnings")
        return value


def _fits(message: str, text: str | re.Pattern[str] | None) -> bool:
    if isinstance(text, re.Pattern):
        return text.search(message) is not None
    return text is None or message == text


def _show_gradients(optimizer: Any) -> str:
    groups = getattr(optimizer, "__dict__", {}).get("param_groups")
    if not isinstance(groups, (list, tuple)):
        return "(not listed)"
    listed = [group["params"] for group in groups if isinstance(group["params"], (list, tuple))]
    return show([getattr(parameter, "grad", parameter) for parameters in listed for parameter in parameters])


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Restores torch's global settings that a behaviour may change; fixes the seed; keeps warnings off the screen."""
    dtype = torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    deterministic_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    warn_always, grad_mode = torch.is_warn_always_enabled(), torch.is_grad_enabled()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        torch.set_warn_always(True)  # else a warning of torch's C++ code would reach only its first caller
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            if torch.are_deterministic_algorithms_enabled() != deterministic:  # the setter loads the compiler
                torch.use_deterministic_algorithms(deterministic, warn_only=deterministic_warns)
            torch.set_warn_always(warn_always)
            torch.set_grad_enabled(grad_mode)
