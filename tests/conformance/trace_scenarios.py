"""A recorder for the tests of the C++ class: what torch's own scaler does in the contract's scenarios, as text.

`make contract` writes scenarios.trace; docs/conformance.md describes the format. What cannot be said in C++ (closures,
private names, odd types) ends the part of the scaler or optimizer that it happened to.
"""

from __future__ import annotations

import pathlib
from typing import NamedTuple

import torch

import generated
from ampscaler.conformance import Case, Difference, Subject, all_behaviours, find_subject
from ampscaler.conformance.case import isolated
from ampscaler.conformance.differences import CPP_CLASS_DIFFERENCES
from ampscaler.conformance.record import Call
from ampscaler.conformance.subject import TORCH_SCALER
from ampscaler.conformance.values import bits

FILE = pathlib.Path(__file__).parent / "scenarios.trace"
ERRORS = {"AssertionError", "RuntimeError", "ValueError", "KeyError", "NotImplementedError"}
# Those that trace.cpp knows.
DTYPES = {"float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex32", "complex64"}
DTYPES |= {"int8", "int16", "int32", "int64", "uint8", "bool"}
PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
READERS = {"get_scale", "get_growth_factor", "get_backoff_factor", "get_growth_interval", "is_enabled", "state_dict"}
SETTERS = {"set_growth_factor": float, "set_backoff_factor": float, "set_growth_interval": int}


class Unsayable(Exception):
    """This call has no counterpart in C++."""


class PublicSubject(Subject):
    """torch's scaler, seen as a class without private names: behaviours then keep to the public methods."""

    is_private = False


def encode_tensor(tensor):
    if tensor.numel() > 16:
        raise Unsayable("a tensor too large to write down")
    if (
        tensor.layout != torch.strided
        or not tensor.is_contiguous()
        or type(tensor)
        not in (
            torch.Tensor,
            torch.nn.Parameter,
        )
    ):
        raise Unsayable("a tensor that is not plain, dense and contiguous")
    if tensor.is_inference() or tensor.device.type != "cpu":
        raise Unsayable("an inference tensor or another device")
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise Unsayable(f"a tensor of {dtype}")
    return " ".join([dtype, str(tensor.dim()), *map(str, tensor.shape), bits(tensor).hex() or "-"])


def encode_float(value):
    if type(value) is not float:  # torch gives an int back as an int
        raise Unsayable(f"a {type(value).__name__} for a float")
    return value.hex()


def encode_state(state):
    """A state dict, whole or in parts; ints stay ints."""
    parts = []
    for key, value in state.items():
        if type(value) not in (float, int):
            raise Unsayable(f"a {type(value).__name__} in a state dict")
        parts.append(f"{key} {'int ' + str(value) if type(value) is int else 'float ' + value.hex()}")
    return f"state {len(parts)} {' '.join(parts)}".rstrip()


def encode_value(value):
    if value is None:
        return "none"
    if type(value) is bool:
        return f"bool {int(value)}"
    if type(value) is int:
        return f"int {value}"
    if type(value) is float:
        return f"float {value.hex()}"
    if isinstance(value, torch.Tensor):
        return f"tensor {encode_tensor(value)}"
    if type(value) is dict:
        return encode_state(value)
    if type(value) in (list, tuple) and all(isinstance(item, torch.Tensor) for item in value):
        return " ".join(["tensors", str(len(value)), *map(encode_tensor, value)])
    raise Unsayable(f"a {type(value).__name__}")


class Mark(NamedTuple):
    """Where the recording stood, to return to."""

    lines: int
    parameters: int
    known: dict[tuple[str, int], str]
    numbers: dict[int, int]


class Pending(NamedTuple):
    """A call that has been written down but not made."""

    mark: Mark
    line: str
    involved: list[object]


class Recorder:
    """An observer of record.Log: turns calls into lines."""

    def __init__(self):
        self.lines: list[str] = []
        self.parameters: list[torch.nn.Parameter] = []
        self.known: dict[tuple[str, int], str] = {}  # what the replaying side holds, as lines
        self.numbers: dict[int, int] = {}  # of scalers and optimizers, by id
        self.ended: dict[int, str] = {}  # id of a scaler or optimizer to why it is not recorded any more
        self.kept: list[object] = []  # so that ids stay theirs
        self.pending: list[Pending | None] = []  # calls may nest
        self.calls = 0

    # ---- what Log calls ----

    def released(self, scaler) -> None:
        self.end([scaler], "calls of it may follow that are not seen")

    def before(self, call: Call) -> None:
        self.pending.append(None)
        involved = [call.scaler, *[arg for arg in call.args if hasattr(arg, "param_groups")]]
        if any(id(item) in self.ended for item in involved):
            self.end(involved, "an earlier call of the other side is not recorded")
            return
        mark = Mark(len(self.lines), len(self.parameters), dict(self.known), dict(self.numbers))
        try:
            self.pending[-1] = Pending(mark, self.encode_call(call), involved)
        except Unsayable as reason:
            self.roll_back(mark)
            self.end(involved, str(reason))

    def after(self, call: Call) -> None:
        pending = self.pending.pop()
        if pending is None:
            return
        try:
            outcome = self.encode_outcome(call)
            self.lines += [pending.line, outcome]
            self.sync("expect")
            self.expect_scale(call.scaler)
            self.calls += 1
        except Unsayable as reason:
            self.roll_back(pending.mark)
            self.end(pending.involved, str(reason))

    def end(self, involved, reason):
        for item in involved:
            self.ended.setdefault(id(item), reason)
            self.kept.append(item)

    def roll_back(self, mark: Mark):
        self.known, self.numbers = mark.known, mark.numbers
        del self.lines[mark.lines :]
        del self.parameters[mark.parameters :]

    # ---- calls ----

    def encode_call(self, call: Call) -> str:
        self.check_context()
        scaler = self.scaler_number(call.scaler)
        if call.kwargs and (call.name, set(call.kwargs)) != ("step", {"closure"}):
            raise Unsayable("keyword arguments")
        words = self.encode_arguments(call)
        self.sync("set")
        return f"call {scaler} {words}"

    def check_context(self):
        if torch.is_inference_mode_enabled() or torch.get_default_dtype() != torch.float32:
            raise Unsayable("inference mode, or another default dtype")

    def encode_arguments(self, call: Call) -> str:
        name, args = call.name, call.args
        if name in READERS and not args:
            return name
        if name in SETTERS and len(args) == 1:
            if type(args[0]) is not SETTERS[name]:
                raise Unsayable(f"{name} with a {type(args[0]).__name__}")
            return f"{name} {args[0] if SETTERS[name] is int else encode_float(args[0])}"
        if name == "scale" and len(args) == 1 and isinstance(args[0], (torch.Tensor, list, tuple)):
            return f"scale {encode_value(args[0])}"
        if name in ("unscale_", "step") and len(args) == 1:
            verb = "step_closure" if call.kwargs else name
            return f"{verb} {self.optimizer_number(args[0])}"
        if name == "update" and not args:
            return "update none"
        if name == "update" and type(args[0]) is float:
            return f"update {encode_value(args[0])}"
        if name == "update" and isinstance(args[0], torch.Tensor) and not args[0].requires_grad:
            return f"update {encode_value(args[0])}"
        if name == "load_state_dict" and type(args[0]) is dict:
            return f"load_state_dict {encode_state(args[0])}"
        raise Unsayable(f"{name}({', '.join(type(arg).__name__ for arg in args)})")

    def encode_outcome(self, call: Call) -> str:
        error = call.error
        if error is None:
            return f"returns {encode_value(call.value)}"
        if type(error).__name__ not in ERRORS:
            raise Unsayable(f"a {type(error).__name__}")
        text = error.args[0] if isinstance(error, KeyError) else str(error)
        return f"raises {type(error).__name__} {text.replace(chr(10), '|')}"

    # ---- scalers, optimizers, parameters ----

    def scaler_number(self, scaler):
        if id(scaler) in self.numbers:
            return self.numbers[id(scaler)]
        if type(scaler) is not torch.amp.GradScaler:
            raise Unsayable("a subclass")
        if scaler._device != "cpu" or not isinstance(scaler._enabled, bool):
            raise Unsayable("an odd device or enabled")
        if scaler._enabled:
            fields = (scaler._init_scale, scaler._growth_factor, scaler._backoff_factor)
            if type(scaler._growth_interval) is not int or scaler._scale is not None:
                raise Unsayable("an odd interval, or a scaler that exists already")
            options = f"enabled {' '.join(encode_float(field) for field in fields)} {scaler._growth_interval}"
        else:
            options = "disabled"
        number = sum(line.startswith("scaler ") for line in self.lines)
        self.lines.append(f"scaler {number} {options}")
        return self.remember(scaler, number)

    def optimizer_number(self, optimizer):
        if vars(optimizer).keys() & {"step", "grad_scale", "found_inf"}:
            raise Unsayable("an attribute put on the optimizer")
        if id(optimizer) in self.numbers:
            return self.numbers[id(optimizer)]
        if type(optimizer) is not torch.optim.SGD or optimizer.state:
            raise Unsayable(f"a {type(optimizer).__name__}, or one that has stepped already")
        words = [self.encode_group(group) for group in optimizer.param_groups]
        number = sum(line.startswith("optimizer ") for line in self.lines)
        self.lines.append(f"optimizer {number} {len(words)} {' '.join(words)}")
        return self.remember(optimizer, number)

    def encode_group(self, group):
        if any(group[key] for key in ("dampening", "weight_decay", "nesterov", "maximize", "fused")):
            raise Unsayable("an option of SGD")
        if len(group["params"]) > 16:
            raise Unsayable("too many parameters to write down")
        numbers = [str(self.parameter_number(parameter)) for parameter in group["params"]]
        return f"{float(group['lr']).hex()} {float(group['momentum']).hex()} {len(numbers)} {' '.join(numbers)}"

    def parameter_number(self, parameter):
        if not isinstance(parameter, torch.nn.Parameter):
            raise Unsayable("a parameter that is none")
        for number, known in enumerate(self.parameters):
            if known is parameter:
                return number
        self.parameters.append(parameter)
        self.sync("set")
        return len(self.parameters) - 1

    def remember(self, item, number):
        self.numbers[id(item)] = number
        self.kept.append(item)
        return number

    # ---- state: `set` before a call is what the scenario changed, `expect` after it is what the scaler changed ----

    def sync(self, verb):
        for number, parameter in enumerate(self.parameters):
            self.say(verb, "parameter", number, encode_tensor(parameter))
            self.say(verb, "gradient", number, self.encode_gradient(number, parameter.grad))

    def encode_gradient(self, number, gradient):
        if gradient is None:
            return "none"
        for earlier, parameter in enumerate(self.parameters[:number]):
            if parameter.grad is gradient:
                return f"of {earlier}"
        if gradient.requires_grad:
            raise Unsayable("a gradient with a graph")
        return encode_tensor(gradient)

    def say(self, verb, kind, number, text):
        if self.known.get((kind, number)) != text:
            self.known[(kind, number)] = text
            self.lines.append(f"{verb} {kind} {number} {text}")

    def expect_scale(self, scaler):
        if scaler._enabled:
            scale = scaler._init_scale if scaler._scale is None else scaler._scale.item()
            tracker = scaler._init_growth_tracker if scaler._growth_tracker is None else scaler._growth_tracker.item()
            self.say("expect", "scale", self.numbers[id(scaler)], f"{encode_float(scale)} {tracker}")


def record(behaviour):
    """The lines of one behaviour; empty if nothing of it can be replayed."""
    torchs = find_subject(TORCH_SCALER)
    recorder = Recorder()
    case = Case(PublicSubject(torchs.name, torchs.scaler_class, torchs.operators), torch.device("cpu"), recorder)
    try:
        with isolated():
            behaviour.check(case)
    except Difference:
        return []  # the behaviour notices the recorder itself, as those that count host reads do
    return [f"scenario {behaviour.id} {behaviour.sentence}", *recorder.lines] if recorder.calls else []


def generate() -> str:
    lines = ["# Generated by tests/conformance/trace_scenarios.py from torch's own scaler; not edited by hand."]
    for behaviour in all_behaviours():
        python_only = behaviour.private or behaviour.operators or behaviour.only_on
        if not python_only and behaviour.id not in CPP_CLASS_DIFFERENCES:
            lines += record(behaviour)
    lines.append(f"end {sum(line.startswith('scenario ') for line in lines)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    generated.run(FILE, generate)
