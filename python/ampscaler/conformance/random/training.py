"""Strategies for ordinary training: the scaler, the parameters, the optimizers, and whole iterations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ampscaler.conformance.random.vocabulary import (
    FLOATS,
    ODD_DTYPES,
    PLAIN_NUMBERS,
    SHAPES,
    Parameter,
    Setting,
    choose,
    gradient,
    options,
    sometimes,
    tensor,
)


class Statement(NamedTuple):
    """Source text, and the name of the kind of statement that it is one of."""

    kind: str
    text: str


DEVICES = ('"cpu:0"', 'torch.device("cpu")', '"xpu"', '"cuda"', "None")
#: Arguments of the constructor: usual values, then odd ones.
ARGUMENTS = {
    "init_scale": (
        ("4.0", "3000.0", "65536.0", "2.0**-2"),
        ("0.1", "2.0**-148", "0.0", "inf", "4", "1e39", "nan"),
    ),
    "growth_factor": (("1.5", "3.0", "4.0"), ("3", "1.0", "nan", "inf")),
    "backoff_factor": (("0.75", "0.25"), ("0.0", "-1.0", "nan", "1.0")),
    "growth_interval": (("1", "2", "3"), ("0", "-1", "2.0", "True")),
}
SUBCLASSES = {
    "subclass_records": """\
class Sub(Scaler):
    def __getattribute__(self, name):
        if name.endswith("_") or name.startswith(("_maybe", "_check", "_get", "get_s")):
            calls.append(name)
        return super().__getattribute__(name)""",
    "subclass_allows_half": """\
class Sub(Scaler):
    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
        return super()._unscale_grads_(optimizer, inv_scale, found_inf, True)""",
    "subclass_always_steps": """\
class Sub(Scaler):
    def _maybe_opt_step(self, optimizer, optimizer_state, *args, **kwargs):
        calls.append(optimizer_state["stage"].name)
        return optimizer.step(*args, **kwargs)""",
    "subclass_adds_flags": """\
class Sub(Scaler):
    def _unscale_grads_(self, *args):
        flags = super()._unscale_grads_(*args)
        return {device: flag + 0.5 * (flag > 0) for device, flag in flags.items()}""",
    "subclass_forwards_step": """\
class Sub(Scaler):
    def step(self, optimizer, *args, **kwargs):
        return ("sub", super().step(optimizer, *args, **kwargs))
    def get_scale(self):
        return 2.0 * super().get_scale()""",
}
#: In a template, <all> stands for the parameters, <first> for the first, <rest> for the others.
# Fused SGD has no momentum: torch fills its buffers with uninitialised memory when the first step is skipped.
OPTIMIZERS = {
    "ordinary": (
        "torch.optim.SGD([<all>], lr=0.5)",
        "torch.optim.SGD([<all>], lr=0.1, momentum=0.9)",
        "torch.optim.Adam([<all>], lr=0.1, foreach=False)",
        "torch.optim.AdamW([<all>], lr=0.1, foreach=True)",
        "torch.optim.SGD([{'params': [<first>]}, {'params': [<rest>], 'lr': 0.25}], lr=0.5)",
        "torch.optim.RMSprop([<all>], lr=0.1)",
        "Raising([<all>], lr=0.5)",
        "Duck([<all>])",
    ),
    "fused": (
        "torch.optim.SGD([<all>], lr=0.5, fused=True)",
        "torch.optim.Adam([<all>], lr=0.1, fused=True)",
        "torch.optim.AdamW([<all>], lr=0.1, fused=True, amsgrad=True)",
        "AttributeVariant([<all>], lr=0.5)",
    ),
    "odd": (
        "Lazy([<all>])",
        "Duck([<all>, 'no tensor'])",
        "Duck([<all>, <first>])",
        "KeywordVariant([<all>], lr=0.5)",
        "RaisingAttributeVariant([<all>], lr=0.5)",
        "torch.optim.LBFGS([<all>])",
        "torch.optim.Adagrad([<all>], fused=True)",
    ),
}


def draw_scaler(draw: DrawFn, device: str, private: bool) -> list[Statement]:
    """The construction of the scaler, of a subclass now and then."""
    where = choose(draw, DEVICES) if private and sometimes(draw, 15) else f'"{device}"'
    arguments = [where]
    for name, (usual, odd) in ARGUMENTS.items():
        if sometimes(draw, 60 if name in ("init_scale", "growth_interval") else 30):
            arguments.append(f"{name}={choose(draw, odd if private and sometimes(draw, 10) else usual)}")
    if sometimes(draw, 4):
        arguments.append("enabled=False")
    kind = choose(draw, tuple(SUBCLASSES)) if private and sometimes(draw, 12) else ""
    construction = Statement("construct", f"scaler = {'Sub' if kind else 'Scaler'}({', '.join(arguments)})")
    return [Statement(kind, SUBCLASSES[kind]), construction] if kind else [construction]


def draw_parameters(draw: DrawFn, private: bool) -> tuple[Parameter, ...]:
    """One to four parameters."""
    specs: list[tuple[tuple[int, ...], str]] = []
    for _ in range(draw(st.sampled_from((1, 1, 2, 2, 3, 4)))):
        dtype = "float32"
        if sometimes(draw, 30):
            dtype = choose(draw, FLOATS)
            if private and sometimes(draw, 25):
                dtype = choose(draw, ODD_DTYPES)
        specs.append((choose(draw, SHAPES), dtype))
    return tuple(Parameter(f"p{i}", shape, dtype) for i, (shape, dtype) in enumerate(specs))


def create_parameter(parameter: Parameter, device: str) -> Statement:
    """A parameter of ones."""
    ones = f"torch.ones({parameter.shape}{options(device, parameter.dtype)})"
    fixed = ", requires_grad=False" if parameter.dtype in ("int32", "bool") else ""
    return Statement("parameter", f"{parameter.name} = torch.nn.Parameter({ones}{fixed})")


def draw_optimizer(draw: DrawFn, name: str, parameters: Sequence[Parameter], private: bool) -> Statement:
    """An optimizer of these parameters."""
    kind = "ordinary"
    if sometimes(draw, 40):
        kind = "odd" if private and sometimes(draw, 40) else "fused"
    if kind == "fused" and not all(parameter.is_floating for parameter in parameters):
        kind = "ordinary"
    names = [parameter.name for parameter in parameters]
    text = choose(draw, OPTIMIZERS[kind])
    text = text.replace("<all>", ", ".join(names)).replace("<first>", names[0]).replace("<rest>", ", ".join(names[1:]))
    return Statement(f"{kind}_optimizer", f"{name} = {text}")


def set_gradients(draw: DrawFn, setting: Setting) -> list[Statement]:
    """New gradients for most of the parameters."""
    return [
        Statement("gradient", f"{parameter.name}.grad = {gradient(draw, parameter, setting)}")
        for parameter in setting.parameters
        if _present(draw, setting)
    ]


def _present(draw: DrawFn, setting: Setting) -> bool:
    """Seldom false; never where an optimizer without gradients may fare otherwise than with torch's scaler."""
    return not setting.private or sometimes(draw, 95)


def backward(draw: DrawFn, setting: Setting) -> list[Statement]:
    """Gradients by autograd: of a sum, through the scaler."""
    dense = [parameter for parameter in setting.parameters if parameter.is_floating]
    if not dense:
        return []
    factor = choose(draw, ("inf", "nan")) if sometimes(draw, 10) else choose(draw, PLAIN_NUMBERS)
    total = " + ".join(f"({parameter.name} * {factor}).sum()" for parameter in dense)
    return [Statement("backward", f"scaler.scale({total}).backward()")]


@st.composite
def iteration(draw: DrawFn, setting: Setting) -> list[Statement]:
    """Gradients, scale, and for each optimizer unscale_ and step; then update. Seldom is a part missing."""
    statements: list[Statement] = []
    by_autograd = sometimes(draw, 30)
    if by_autograd and sometimes(draw, 70):
        to_none = "" if setting.private else "set_to_none=False"
        statements += [Statement("zero_grad", f"{name}.zero_grad({to_none})") for name, _ in setting.optimizers]
    if by_autograd:
        statements += backward(draw, setting)
    elif _present(draw, setting):
        statements += set_gradients(draw, setting)
    if not by_autograd and sometimes(draw, 92):
        statements.append(
            Statement("scale", f"scaler.scale({tensor(draw, (), 'float32', setting.device, plain=True)})")
        )
    for name, parameters in setting.optimizers:
        statements += _use(draw, name, parameters, setting)
    if sometimes(draw, 95):
        statements.append(Statement("update", "scaler.update()"))
    return statements


def _use(draw: DrawFn, name: str, parameters: Sequence[Parameter], setting: Setting) -> list[Statement]:
    statements: list[Statement] = []
    if sometimes(draw, 35):
        statements.append(Statement("unscale_", f"scaler.unscale_({name})"))
        if setting.private and sometimes(draw, 30):
            listed = ", ".join(parameter.name for parameter in parameters)
            statements.append(Statement("clip", f"torch.nn.utils.clip_grad_norm_([{listed}], 1.0)"))
    if sometimes(draw, 95):
        statements.append(Statement("step", f"scaler.step({name})"))
    return statements
