"""What the random statements are made of: literals of numbers, tensors, gradients, and the parameters of a program.

In every list of choices the simplest comes first: that is where a failure shrinks to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

T = TypeVar("T")

SHAPES = ((2,), (), (0,), (1,), (2, 3), (3, 2), (33,))
FLOATS = ("float32", "float64", "bfloat16")
#: Dtypes that torch's scaler or optimizers do not accept, or only sometimes.
ODD_DTYPES = ("float16", "float16", "complex64", "float8_e4m3fn", "int32", "bool")
PLAIN_NUMBERS = ("1.0", "2.0", "-3.0", "0.5")
NUMBERS = (*PLAIN_NUMBERS, "0.1", "1000.0", "-1e-3", "3e4", "1e30", "-0.0", "1e-40", "3e38")
NONFINITE = ("inf", "-inf", "nan")
LAYOUTS = ("strided", "offset", "sparse", "shared", "subclass", "leaf", "refused")
#: Gradients that torch does not accept, or only sometimes.
REFUSED = ("torch._neg_view({dense})", "torch.ones({shape}, dtype=torch.float64)", "2.0")
#: One more for ordinary optimizers: fused kernels take no notice of strides, and read and write beyond its memory.
EXPANDED = "{scalar}.expand({shape})"


def choose(draw: DrawFn, choices: Sequence[T]) -> T:
    """One of the choices."""
    return draw(st.sampled_from(choices))


def sometimes(draw: DrawFn, percent: int) -> bool:
    """True in that share of cases."""
    return draw(st.integers(0, 99)) >= 100 - percent


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of the program."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for length in self.shape:
            size *= length
        return size

    @property
    def is_floating(self) -> bool:
        """False for the dtypes that optimizers do not expect."""
        return self.dtype in FLOATS or self.dtype == "float16"


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all statements of a program may name. `private`: also torch's private names, and odd values."""

    device: str
    private: bool
    #: True if an optimizer runs torch's fused kernels.
    fused: bool
    parameters: tuple[Parameter, ...]
    #: Names of the optimizers with their parameters.
    optimizers: tuple[tuple[str, tuple[Parameter, ...]], ...]


def options(device: str, dtype: str = "float32") -> str:
    """The trailing arguments of a tensor: dtype and device, where they are not the default."""
    return (f", dtype=torch.{dtype}" if dtype != "float32" else "") + (
        f", device='{device}'" if device != "cpu" else ""
    )


def number(draw: DrawFn, plain: bool = False) -> str:
    """The literal of a finite number; `plain`: one that is exact and harmless in every dtype."""
    if plain:
        return choose(draw, PLAIN_NUMBERS)
    if sometimes(draw, 20):
        return repr(draw(st.floats(width=32, allow_nan=False, allow_infinity=False)))
    return choose(draw, NUMBERS)


def tensor(
    draw: DrawFn, shape: tuple[int, ...], dtype: str, device: str, nonfinite: bool = False, plain: bool = False
) -> str:
    """An expression for a dense tensor of that shape. `nonfinite`: with an inf or NaN, if it has elements."""
    tail = options(device, dtype)
    odd = choose(draw, NONFINITE) if nonfinite and 0 not in shape else ""
    if shape == ():
        return f"torch.tensor({odd or number(draw, plain)}{tail})"
    if len(shape) == 2:
        rows = f"torch.tensor([[1.0, 2.0, {odd or number(draw, plain)}], [-4.0, 0.5, 6.0]]{tail})"
        return rows if shape == (2, 3) else f"{rows}.view{shape}"
    if shape == (33,):  # long enough for torch's vector loops
        base = f"torch.arange(33.0{tail})"
        if odd:
            return f"torch.cat([{base}[1:], torch.tensor([{odd}]{tail})])"
        return f"{base} * {number(draw, plain)}"
    values = [number(draw, plain) for _ in range(shape[0])]
    if odd:
        values[draw(st.integers(0, shape[0] - 1))] = odd
    return f"torch.tensor([{', '.join(values)}]{tail})"


def gradient(draw: DrawFn, parameter: Parameter, setting: Setting) -> str:
    """An expression for a gradient of the parameter."""
    nonfinite = sometimes(draw, 12)
    dense = tensor(draw, parameter.shape, parameter.dtype, setting.device, nonfinite, plain=not setting.private)
    if not sometimes(draw, 20):
        return dense
    return _layout(draw, choose(draw, LAYOUTS), dense, parameter, setting)


def _layout(draw: DrawFn, layout: str, dense: str, parameter: Parameter, setting: Setting) -> str:
    if layout == "strided" and parameter.shape:
        return f"torch.stack([{dense}] * 2, dim=-1)[..., 0]"
    if layout == "offset":
        return f"torch.stack([{dense}] * 2)[1]"
    # Fused kernels refuse sparse gradients; another scaler may leave the optimizer in another state than torch's then.
    sparse = (setting.private or not setting.fused) and parameter.shape in ((1,), (2,))
    if layout == "sparse" and sparse:
        indices = f"[[0, {parameter.size - 1}]]"
        values = tensor(draw, (2,), parameter.dtype, setting.device, sometimes(draw, 12), plain=not setting.private)
        return f"torch.sparse_coo_tensor({indices}, {values}, {parameter.shape})"
    if not setting.private:
        return dense
    tail = options(setting.device, parameter.dtype)
    alike = [p for p in setting.parameters if (p.shape, p.dtype) == (parameter.shape, parameter.dtype)]
    if layout == "refused":
        template = choose(draw, REFUSED if setting.fused else (*REFUSED, EXPANDED))
        return template.format(dense=dense, scalar=f"torch.tensor(2.0{tail})", shape=parameter.shape)
    return {
        "shared": f"{choose(draw, alike).name}.grad",
        "subclass": f"({dense}).as_subclass(Tagged)",
        "leaf": f"({dense}).requires_grad_()",
    }.get(layout, dense)
