"""What the contract needs besides a Case: rounding, stand-in optimizers, machines and groups, counts of host reads."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ampscaler.conformance.case import Case, NotApplicable

INF, NAN = float("inf"), float("nan")
MISSING = "(no such attribute)"


def to_float32(value: float) -> float:
    """A double rounded once to float32, by the C compiler and without torch."""
    return ctypes.c_float(value).value


def inverse(scale: float) -> float:
    """What unscale_ should multiply by at this scale: the reciprocal formed in double, rounded once to float32."""
    return to_float32(1.0 / to_float32(scale))


# ---- dtypes ----


def scaler_dtypes(case: Case) -> tuple[torch.dtype, ...]:
    """What every scaler unscales here: it refuses float16, and torch's operator has bfloat16 on the CPU only."""
    return (torch.float32, torch.float64) + ((torch.bfloat16,) if case.device.type == "cpu" else ())


def operator_dtypes(case: Case) -> tuple[torch.dtype, ...]:
    """What every unscale operator takes here."""
    return (torch.float16, *scaler_dtypes(case))


# ---- tensors and scalers ----


def home(case: Case) -> torch.device:
    """The device of tensors that are made on the device under test, with its index if it has one."""
    return case.tensor(0.0).device


def sparse(case: Case, indices: list[int], values: list[float], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A sparse vector of size 3, as autograd makes it: not coalesced."""
    return torch.sparse_coo_tensor(case.tensor([indices], torch.int64), case.tensor(values, dtype), (3,))


def iterate(case: Case, scaler: Any, gradient: float = 4.0, times: int = 1) -> Any:
    """Iterations of the scaler, each with a fresh SGD that has this gradient; the last one's optimizer."""
    for _ in range(times):
        optimizer = case.sgd([gradient])
        scaler.step(optimizer)
        scaler.update()
    return optimizer


# ---- stand-ins for optimizers ----


class Steps:
    """Has only what a scaler needs of an optimizer: param_groups and step. Notes how it was stepped."""

    def __init__(self, *parameters: Any, result: Any = None) -> None:
        self.param_groups: Any = [{"params": list(parameters)}]
        self.result = result
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Notes the arguments; returns the result that the test gave."""
        self.calls.append((args, kwargs))
        return self.result


@dataclasses.dataclass
class Handed:
    """What one call of an optimizer's step was handed, and the gradients at that moment."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad_scale: Any
    found_inf: Any
    gradients: list[Any]


class AttributeOptimizer:
    """Handles the scale itself: finds it and the flag in its attributes. Writes down each call, and changes nothing."""

    _step_supports_amp_scaling: Any = True

    def __init__(self, *parameters: torch.nn.Parameter) -> None:
        self.param_groups = [{"params": list(parameters)}]
        self.handed: list[Handed] = []
        self.during: Callable[[Any], None] = lambda optimizer: None

    def step(self, *args: Any, **kwargs: Any) -> str:
        """Notes the call, does what the test wants to happen during it, returns a value to recognise."""
        gradients = [None if p.grad is None else p.grad.clone() for p in self.param_groups[0]["params"]]
        attributes = [getattr(self, name, MISSING) for name in ("grad_scale", "found_inf")]
        copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in attributes]
        self.handed.append(Handed(args, kwargs, copies[0], copies[1], gradients))
        self.during(self)
        return "the optimizer's value"


class KeywordOptimizer(AttributeOptimizer):
    """Wants the scaler itself, as a keyword of its step; keeps it among the keywords of what it was handed."""

    def step(self, *args: Any, grad_scaler: Any = None, **kwargs: Any) -> str:
        """Notes the call."""
        return super().step(*args, **kwargs, grad_scaler=grad_scaler)


def attribute_optimizer(case: Case, *gradients: Any, dtype: torch.dtype = torch.float32) -> Any:
    """An AttributeOptimizer on parameters with these gradients."""
    return case.optimizer(AttributeOptimizer(*(case.parameter(gradient, dtype) for gradient in gradients)))


def fused_names(case: Case) -> list[str]:
    """The stock optimizers that are handed the scale; Adagrad is one of them in some versions of torch only."""
    probe = torch.optim.Adagrad([torch.nn.Parameter(torch.ones(1, device=case.device))], fused=True)
    return ["Adam", "AdamW", "SGD"] + ["Adagrad"] * bool(getattr(probe, "_step_supports_amp_scaling", False))


# ---- the machine ----


@contextlib.contextmanager
def machine(*, cuda: bool, xla: bool = False) -> Iterator[None]:
    """Makes torch, and whatever looks for a module, see a machine with or without CUDA and torch_xla."""
    module = types.ModuleType("torch_xla")
    module.__spec__ = importlib.machinery.ModuleSpec("torch_xla", loader=None)
    modules: dict[str, Any] = sys.modules
    before = {"torch_xla": modules["torch_xla"]} if "torch_xla" in modules else {}
    modules["torch_xla"] = module if xla else None  # None: find_spec finds nothing
    try:
        with mock.patch.object(torch.cuda, "is_available", lambda: cuda):
            yield
    finally:
        del modules["torch_xla"]
        modules.update(before)


@contextlib.contextmanager
def process_group() -> Iterator[Any]:
    """A gloo group of this process alone, torn down afterwards; the default group too, unless there is one already."""
    distributed: Any = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        raise NotApplicable("this build of torch has no gloo")
    if distributed.is_initialized():
        group = distributed.new_group([distributed.get_rank()], backend="gloo", use_local_synchronization=True)
    else:
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        group = distributed.group.WORLD
    try:
        yield group
    finally:
        distributed.destroy_process_group(group)


# ---- what a call does ----


class HostReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that make the host wait for a value: item(), bool(), equal(), copies to the CPU."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.count += func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
        if func is torch.ops.aten._to_copy.default:
            self.count += args[0].device.type != "cpu" and result.device.type == "cpu"
        return result


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps every operation that reaches the dispatcher, as (operator, args, kwargs)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def arguments_of(self, operator: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """The arguments of every call of one operator."""
        return [(args, kwargs) for function, args, kwargs in self.seen if function is operator]


@contextlib.contextmanager
def waiting_is_an_error(device: torch.device) -> Iterator[None]:
    """On CUDA, whatever makes the host wait for the device raises; elsewhere this does nothing."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def spy(scaler: Any, name: str) -> list[tuple[Any, ...]]:
    """Puts a method on the scaler itself that works as before; the list gets the arguments of every call of it."""
    original, calls = getattr(scaler, name), []

    def noting(*args: Any) -> Any:
        calls.append(args)
        return original(*args)

    setattr(scaler, name, noting)
    return calls


def schema_of(operator: Any) -> Any:
    """Of an operator, or of the only overload that it stands for."""
    return operator._schema if hasattr(operator, "_schema") else getattr(operator, operator.overloads()[0])._schema


def has_kernel(operator: Any, key: str, composite: bool = False) -> bool:
    """Whether a kernel is registered for the dispatch key; `composite`: one that serves several keys counts too."""
    schema = schema_of(operator)
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    if composite:
        return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, key))
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))
